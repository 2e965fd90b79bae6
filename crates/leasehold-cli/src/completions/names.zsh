
# Completes the names of the locks in use.
_leasehold_names() {
    local -a names store
    store=(${opt_args[--store]:+--store} ${(Q)opt_args[--store]})
    names=(${(f)"$(leasehold ls --names $store -- "${(Q)PREFIX}" 2> /dev/null)"})
    compadd -a names
}

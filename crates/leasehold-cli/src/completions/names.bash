
# Completes the command after `--` as the shell does, and the names of the locks in use.
_leasehold_with_names() {
    local at word=${COMP_WORDS[COMP_CWORD]}
    for (( at = 1; at < COMP_CWORD; at++ )); do
        [[ ${COMP_WORDS[at]} == -- ]] || continue
        if declare -F _comp_command_offset > /dev/null; then
            _comp_command_offset $(( at + 1 ))
        elif declare -F _command_offset > /dev/null; then
            _command_offset $(( at + 1 ))
        elif (( COMP_CWORD == at + 1 )); then
            COMPREPLY=( $(compgen -c -- "$word") )
        fi
        return
    done

    _leasehold "$@"
    case ${COMP_WORDS[1]} in
        run | elect | hold | acquire | check | release | wait | ls | show | watch | break) ;;
        *) return ;;
    esac
    # The values of an option are no names.
    if (( COMP_CWORD == 1 )) || [[ $word == -* ]] || [[ ${COMPREPLY[0]:--} != -* ]]; then
        return
    fi

    # A colon ends a word of bash, but not a name.
    local typed=${COMP_LINE:0:COMP_POINT} before name store=()
    typed=${typed##*[[:blank:]]}
    before=${typed%"${typed##*:}"}
    [[ $COMP_LINE =~ --store[=\ ]+([^\ ]+) ]] && store=( --store "${BASH_REMATCH[1]}" )
    COMPREPLY=()
    while IFS= read -r name; do
        printf -v name %q "$name"
        COMPREPLY+=( "${name#"$before"}" )
    done < <(leasehold ls --names "${store[@]}" -- "$typed" 2> /dev/null)
}
complete -F _leasehold_with_names -o bashdefault -o default leasehold

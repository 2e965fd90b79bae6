
# Completes the command after `--` as the shell does, and the names of the locks in use.
function __fish_leasehold_command
    set -l words (commandline -opc)
    set -l rest $words[(math (contains -i -- -- $words) + 1)..]
    complete -C (string join ' ' -- (string escape -- $rest) (commandline -ct))
end

function __fish_leasehold_names
    set -l words (commandline -opc)
    set -l store (string match -e -- --store= $words)
    if set -l at (contains -i -- --store $words)
        set store $words[$at..(math $at + 1)]
    end
    leasehold ls --names $store -- (commandline -ct) 2>/dev/null
end

complete -c leasehold -n 'contains -- -- (commandline -opc)' -f -a '(__fish_leasehold_command)'
complete -c leasehold -n 'not contains -- -- (commandline -opc); and __fish_leasehold_using_subcommand run elect hold acquire check release wait ls show watch break' -f -a '(__fish_leasehold_names)'

    # What follows `--` is the command line of COMMAND.
    local dashes=${words[(ie)--]}
    if (( dashes < CURRENT )); then
        shift $dashes words
        (( CURRENT -= dashes ))
        _normal
        return
    fi


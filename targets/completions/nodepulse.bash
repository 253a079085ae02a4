# bash completion for nodepulse. It asks the program for its help, so it fits the program that is installed.

_nodepulse() {
    local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD-1]}
    local line commands= flags= value=
    # Lines such as `  -o, --output FORMAT  text or json` and `  probe  Show what is known of this board`.
    local flag='^  (-., )?(-[-a-z]+)( ([A-Za-z][^ ]*))?' command='^  ([a-z]+) '
    while IFS= read -r line; do
        if [[ $line =~ $flag ]]; then
            flags+=" ${BASH_REMATCH[1]%, } ${BASH_REMATCH[2]}"
            if [[ $previous == "${BASH_REMATCH[1]%, }" || $previous == "${BASH_REMATCH[2]}" ]]; then
                value=${BASH_REMATCH[4]}
            fi
        elif [[ $line =~ $command ]]; then
            commands+=" ${BASH_REMATCH[1]}"
        fi
    done < <(nodepulse help && nodepulse help settings)
    COMPREPLY=()
    case $previous:$value in
        *:FILE) compopt -o filenames; COMPREPLY=($(compgen -f -- "$current")) ;;
        *:DIR) compopt -o filenames; COMPREPLY=($(compgen -d -- "$current")) ;;
        *:FORMAT) COMPREPLY=($(compgen -W 'text json' -- "$current")) ;;
        *:?*) ;;
        help:) COMPREPLY=($(compgen -W "$commands settings exit-codes" -- "$current")) ;;
        *) COMPREPLY=($(compgen -W "$([[ $current == -* ]] && echo "$flags" || echo "$commands")" -- "$current")) ;;
    esac
}
complete -F _nodepulse nodepulse

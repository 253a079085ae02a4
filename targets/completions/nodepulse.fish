# fish completion for nodepulse. It asks the program for its help, so it fits the program that is installed.

complete -c nodepulse -f
complete -c nodepulse -n '__fish_seen_subcommand_from help' -a 'settings exit-codes'

# The meaning of a setting stands below it; of an option and a command beside it.
for line in (nodepulse help; nodepulse help settings | sed -n '/^  -/{N;s/\n    /  /;p;}')
    if string match -rq '^  (?<command>[a-z]+)(?: \S+)?  +(?<meaning>.*)' -- $line
        complete -c nodepulse -n __fish_use_subcommand -a $command -d $meaning
        complete -c nodepulse -n '__fish_seen_subcommand_from help' -a $command -d $meaning
    else if string match -rq '^  (?:-(?<letter>.), )?(?<dashes>--?)(?<name>[-a-z]+)(?:.=true.false.)?(?: (?<value>[A-Za-z][^ ]*))?  +(?<meaning>.*)' -- $line
        set -l option -l $name
        test "$dashes" = - && set option -s $name
        test -n "$letter" && set -a option -s $letter
        switch "$value"
            case ''
            case FILE
                set -a option -r -F
            case DIR
                set -a option -x -a '(__fish_complete_directories)'
            case FORMAT
                set -a option -x -a 'text json'
            case '*'
                set -a option -x
        end
        complete -c nodepulse $option -d $meaning
    end
end

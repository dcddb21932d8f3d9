# warploom.bash - completion for bash: commands, options and words, as the command's own help has
# them.
# SPDX-License-Identifier: BSD-3-Clause

_warploom() {
    local program=$1 now=${COMP_WORDS[COMP_CWORD]} before= command=
    ((COMP_CWORD > 1)) && command=${COMP_WORDS[1]} before=${COMP_WORDS[COMP_CWORD - 1]}
    local words
    case $before:$now in
    -o:* | --source:* | --spec:* | --workload:* | --launch:* | --q:* | --k:* | --v:* | --lse:*)
        words= ;;
    *:-*) words=$("$program" $command -h 2>/dev/null | grep -oE -- '(^|[ [|{(])--?[a-z][a-z-]*' |
        grep -oE -- '--?[a-z-]+') ;;
    *)
        if [ -z "$command" ]; then
            words=$("$program" -h 2>/dev/null | sed -n 's/^  \([a-z]*\)  *.*/\1/p; /^A PROBLEM/q')
        else
            words=$("$program" -h 2>/dev/null |
                sed -n '/^A PROBLEM/,/^$/s/^  \([a-z_]*\)  .*/\1=/p')
        fi
        ;;
    esac
    local IFS=$' \t\n'
    COMPREPLY=($(compgen -W "$words" -- "$now"))
    [ ${#COMPREPLY[@]} -gt 0 ] || COMPREPLY=($(compgen -f -- "$now"))
    [[ ${COMPREPLY[0]-} == *= ]] && compopt -o nospace 2>/dev/null
}
complete -F _warploom warploom

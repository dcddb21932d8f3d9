# warploom.bash - completion for bash: commands, their words, options and what these take, as the
# command's own help has them.
# SPDX-License-Identifier: BSD-3-Clause

_warploom() {
    local program=$1 now=${COMP_WORDS[COMP_CWORD]} before= command= help value= words=
    ((COMP_CWORD > 1)) && command=${COMP_WORDS[1]} before=${COMP_WORDS[COMP_CWORD - 1]}
    help=$("$program" $command -h 2>/dev/null)
    [[ $before == -* ]] && value=$(sed -n "s/^  $before \\([^ ]*\\) .*/\\1/p" <<<"$help")
    case $command:$value:$now in
    *:ARCH:*) words='sm_90a compute_90a' ;;
    *:?*'|'*:*) words=${value//|/ } ;;
    *:?*:*) ;;
    *::-*) words=$(sed -n 's/^  \(-[a-z-]*\) .*/\1/p' <<<"$help") ;;
    :*) words=$(sed -n 's/^  \([a-z]*\)  *.*/\1/p; /^A PROBLEM/q' <<<"$help") ;;
    *)
        ((COMP_CWORD == 2)) && words=$(sed -n '1s/^[^ ]* [^ ]* \([a-z|-]*\) .*/\1/p' <<<"$help")
        [[ $words == *'|'* ]] && words=${words//|/ } ||
            words=$(sed -n '/^A PROBLEM/,$s/^  \([a-z_]*\)  .*/\1=/p' <<<"$help")
        ;;
    esac
    mapfile -t COMPREPLY < <(compgen -W "$words" -- "$now")
    [[ ${COMPREPLY[0]-} == *= ]] && compopt -o nospace 2>/dev/null
    [ ${#COMPREPLY[@]} -gt 0 ] && return
    mapfile -t COMPREPLY < <(compgen -f -- "$now")
    compopt -o filenames 2>/dev/null
}
complete -F _warploom warploom

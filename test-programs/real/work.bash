# A bash workload: work.bash N. Loops, arrays, pipes, subshells, here-documents, command substitution, traps, jobs.
n=$1
declare -A seen
trap 'echo caught' USR1
for ((r = 0; r < n; r++)); do
    for ((i = 0; i < 4000; i++)); do
        key=k$((i * 7919 % 701))
        seen[$key]+="$i,"
        list[i % 300]="${seen[$key]:0:40}${key^^}"
    done
    echo "${#seen[@]} ${#list[@]} ${seen[k7]:0:60}"
    for i in {1..30}; do
        x=$(printf '%s\n' "${list[@]:i:20}" | sort | (read -r first; echo "$first"; wc -l) | tr '\n' ' ')
        y=$( (cd / && echo "${PWD}$i") )
        z=$(cat <<TEXT
$x $y
TEXT
        )
    done
    echo "$z"
    (exit 4) &
    wait $!
    echo "status $?"
    kill -USR1 $$
    seq 1 20000 | while read -r v; do ((v % 4999 == 0)) && echo "$v"; done
    (ulimit -n 50; exec bash -c 'echo "inner $0 $((6 * 7))"' name)
done
exit 7

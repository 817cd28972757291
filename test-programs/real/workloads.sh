# shellcheck shell=bash
# shellcheck disable=SC2034,SC2016 # COMMAND is for the sourcing script; shells of its own expand
# The real programs that real.sh, truth/truth.sh and bench/preload.sh run. Sourced, not run.
#
# workload_list: their names. workload_prepare NAME DIR SCALE: makes the input files in DIR; SCALE multiplies the work (1 is
# some tenths of a second). workload_command NAME DIR: sets the array COMMAND, to be run in DIR; its standard output and
# exit status are the same each time. workload_lacks NAME: prints what is not installed, if anything.
real_dir=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

workload_list() { echo python sqlite git gcc gxx clang xz perl bash start node redis threads cargo; }

workload_lacks() {
    local need=$1 c
    case $1 in
    python) need=python3 ;;
    sqlite) need=sqlite3 ;;
    gxx | threads) need=g++ ;;
    start) need="env ls" ;;
    redis) need="redis-server redis-benchmark redis-cli" ;;
    esac
    for c in $need; do
        command -v "$c" >/dev/null || { echo "$c is not installed"; return; }
    done
}

# The interpreter itself, not a version manager's shell script.
real_python() { python3 -c 'import sys; print(sys.executable)'; }

# A C or C++ file of $1 functions.
generate_c() {
    printf '#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n'
    awk -v n="$1" 'BEGIN { for (i = 0; i < n; i++) {
        printf "struct node%d { struct node%d *left, *right; long key[%d]; char name[16]; };\n", i, i, i % 5 + 1
        printf "static int order%d(const void *a, const void *b) { const struct node%d *x = a, *y = b; return (x->key[0] > y->key[0]) - (x->key[0] < y->key[0]); }\n", i, i
        printf "long walk%d(struct node%d *t, int depth) { long sum = %d; for (; t; t = depth & 1 ? t->left : t->right, depth >>= 1) {\n", i, i, i
        printf "  switch (t->key[0] %% %d) { case 0: sum += strlen(t->name); break; case 1: sum ^= t->key[0] << 3; break; case 2: sum -= walk%d(t->left, depth / 2); break; default: sum = sum * 31 + depth; } }\n", i % 7 + 3, i
        printf "  return sum; }\n"
        printf "long build%d(int n) { struct node%d *v = calloc(n, sizeof *v); for (int i = 0; i < n; i++) { v[i].key[0] = (i * 7919L + %d) %% 1009; snprintf(v[i].name, 16, \"n%%d\", i); if (i) v[i].left = &v[i / 2]; }\n", i, i, i
        printf "  qsort(v, n, sizeof *v, order%d); long r = walk%d(v + n - 1, n); free(v); return r; }\n", i, i
    } }'
}

generate_cc() {
    printf '#include <algorithm>\n#include <functional>\n#include <map>\n#include <memory>\n#include <string>\n#include <vector>\n'
    printf 'template <class T, int N> struct Table { std::map<std::string, std::vector<T>> rows; T sum(std::function<T(T)> f) { T s{}; for (auto &r : rows) for (auto &v : r.second) s += f(v); return s + N; } };\n'
    awk -v n="$1" 'BEGIN { for (i = 0; i < n; i++)
        printf "struct K%d { int a; bool operator<(const K%d &o) const { return a < o.a; } };\nlong use%d(int n) { Table<long, %d> t; std::map<K%d, std::unique_ptr<std::string>> m; for (int i = 0; i < n; i++) { t.rows[std::to_string(i %% 9)].push_back(i); m[K%d{i}] = std::make_unique<std::string>(i, 65); } std::vector<K%d> v; for (auto &e : m) v.push_back(e.first); std::sort(v.rbegin(), v.rend()); return t.sum([&](long x) { return x * (long)v.size(); }); }\n", i, i, i, i, i, i, i
    }'
}

generate_sql() {
    cat <<SQL
create table item(id integer primary key, name text, grp int, body text); create index item_grp on item(grp);
with recursive n(i) as (select 1 union all select i + 1 from n where i < $1)
  insert into item select i, 'item ' || i || '/' || hex(i * 977), i * 7919 % 4001, substr('the quick brown fox jumps over', i % 20) from n;
select count(*), sum(length(name)), max(grp) from item;
select grp, count(*) c, group_concat(name) from item group by grp order by c desc, grp limit 5;
select body, count(distinct grp) from item group by body order by body;
select sum(length(j)) from (select json_object('id', id, 'name', name, 'list', json_array(grp, body)) j from item);
select count(*) from item a join item b on a.grp = b.id where b.name like '%7%';
update item set body = body || name where id % 3 = 0; delete from item where id % 7 = 0;
select sum(length(body)), count(*) from item;
SQL
    awk -v n="$1" 'BEGIN { for (i = 0; i < n / 30; i++) printf "select name from item where grp = %d and length(body) > 3 order by name limit 1;\n", i * 37 % 4001 }'
}

# A repository with a fixed history: names and dates are given, so are all object ids.
prepare_git() {
    local i f
    rm -rf repo && git init -q -b main repo || return
    (
        cd repo || exit
        git config user.name Tester && git config user.email tester@example.org && git config gc.auto 0
        git config commit.gpgsign false && git config core.hooksPath /dev/null
        mkdir src
        for ((i = 0; i < 25 * $1; i++)); do
            for f in 1 2 3 4 5 6 7 8; do
                awk -v s="$((i * f))" -v f="$f" 'BEGIN { srand(f); for (k = 0; k < 400; k++) print k * f, int(rand() * 99999), k % 41 == s % 41 ? "changed " s : "same" }' >"src/file$f.txt"
            done
            git add -A
            GIT_AUTHOR_DATE="$((1700000000 + i)) +0000" GIT_COMMITTER_DATE="$((1700000000 + i)) +0000" git commit -q -m "Change $i"
        done
    )
}

prepare_cargo() {
    mkdir -p crate/src
    printf '[package]\nname = "small"\nversion = "0.1.0"\nedition = "2021"\n[workspace]\n' >crate/Cargo.toml
    {
        echo 'mod table { use std::collections::BTreeMap; #[derive(Debug, Clone, Default, PartialEq)] pub struct Row { pub name: String, pub cells: BTreeMap<u32, Vec<String>> }'
        for ((i = 0; i < 40 * $1; i++)); do
            echo "pub fn step$i(r: &mut Row, n: u32) -> usize { r.cells.entry(n % ($i + 3)).or_default().push(format!(\"{}-{n}-$i\", r.name)); r.cells.values().map(|v| v.iter().filter(|s| s.len() > $i).count()).sum() }"
        done
        echo '} fn main() { let mut r = table::Row { name: "row".into(), ..Default::default() }; let mut sum = 0;'
        for ((i = 0; i < 40 * $1; i++)); do echo "sum += table::step$i(&mut r, $i);"; done
        echo 'println!("{sum} {}", r.clone() == r); }'
    } >crate/src/main.rs
}

workload_prepare() {
    local name=$1 dir=$2 scale=$3
    mkdir -p "$dir" && cd "$dir" || return
    case $name in
    python) echo "$scale" >n ;;
    sqlite) generate_sql $((20000 * scale)) >work.sql ;;
    git) prepare_git "$scale" ;;
    gcc | clang) generate_c $((60 * scale)) >medium.c ;;
    gxx) generate_cc $((15 * scale)) >medium.cc ;;
    xz) awk -v n=$((40000 * scale)) 'BEGIN { srand(4); for (i = 0; i < n; i++) print i, int(rand() * 1e9), "some text to compress" }' >data ;;
    perl | bash | node | start) echo "$scale" >n ;;
    redis) echo "$scale" >n ;;
    threads) echo "$scale" >n && g++ -std=gnu++17 -O1 -g -pthread -o threads "$real_dir/threads.cc" ;;
    cargo) prepare_cargo "$scale" ;;
    esac
}

workload_command() {
    local name=$1 dir=$2 n
    n=$(cat "$dir/n" 2>/dev/null || echo 1)
    case $name in
    python) COMMAND=(env PYTHONMALLOC=malloc PYTHONHASHSEED=1 "$(real_python)" "$real_dir/work.py" "$n") ;;
    sqlite) COMMAND=(sqlite3 :memory: ".read work.sql") ;;
    git) COMMAND=(bash -c 'cd repo && git gc -q --aggressive --prune=now && git fsck --full --strict 2>&1 && git rev-parse HEAD && git count-objects -v | grep -E "^(count|in-pack|packs|garbage)" && git log --stat --format=%H | sha256sum') ;;
    gcc) COMMAND=(bash -c 'gcc -O2 -c medium.c -o gcc.o && sha256sum gcc.o') ;;
    gxx) COMMAND=(bash -c 'g++ -std=c++17 -O1 -c medium.cc -o gxx.o && sha256sum gxx.o') ;;
    clang) COMMAND=(bash -c 'clang -O2 -c medium.c -o clang.o && sha256sum clang.o') ;;
    xz) COMMAND=(bash -c 'xz -T2 -4 --block-size=500000 -k -c data > data.xz && sha256sum data.xz && xz -T2 -dc data.xz | sha256sum') ;;
    perl) COMMAND=(perl "$real_dir/work.pl" "$n") ;;
    bash) COMMAND=(bash "$real_dir/work.bash" "$n") ;;
    start) COMMAND=(sh -c 'i=0; while [ $i -lt $1 ]; do env true && ls / >/dev/null; i=$((i+1)); done; echo $i starts' sh $((150 * n))) ;;
    node) COMMAND=(node "$real_dir/work.js" "$n") ;;
    redis) COMMAND=(bash "$real_dir/redis.bash" "$n") ;;
    threads) COMMAND=(./threads "$n") ;;
    cargo) COMMAND=(bash -c 'rm -rf out && CARGO_TARGET_DIR=out cargo build -q --offline --release --manifest-path crate/Cargo.toml && out/release/small') ;;
    esac
}

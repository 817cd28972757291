# redis-server under redis-benchmark on the loopback: redis.bash N. Ends by itself; prints only what is the same each time.
n=$1
port=$((20000 + $$ % 12000)) # below the ports of outgoing connections, one of which may still be in use
dir=$(mktemp -d)
cli() { redis-cli -p "$port" "$@"; }
redis-server --port "$port" --bind 127.0.0.1 --save '' --appendonly no --dir "$dir" --daemonize no --enable-debug-command yes \
    --activedefrag no --logfile "$dir/log" &
server=$!
trap 'kill "$server" 2>/dev/null; rm -rf "$dir"' EXIT
for ((i = 0; i < 300; i++)); do
    [ "$(cli ping 2>/dev/null)" = PONG ] && break
    kill -0 "$server" 2>/dev/null || { echo "server ended early"; tail -n 20 "$dir/log"; exit 1; }
    sleep 0.05
done
for ((i = 0; i < 2000 * n; i++)); do
    echo "SET key:$i $((i * 7919))-$i"
    echo "HSET hash:$((i % 97)) field$i value$i"
    echo "RPUSH list:$((i % 31)) element$i"
    echo "ZADD zset $((i % 501)) member$i"
    echo "APPEND grows $i,"
done | cli --pipe | tail -n 1
redis-benchmark -h 127.0.0.1 -p "$port" -q -P 4 -c 8 -d 200 -n $((10000 * n)) -t set,get,lpush,lpop,sadd,hset,mset >"$dir/bench" 2>&1
echo "benchmark status $?, $(grep -c 'requests per second' "$dir/bench") tests"
echo "BGSAVE: $(cli bgsave)"
for ((i = 0; i < 300; i++)); do
    cli info persistence | grep -q 'rdb_bgsave_in_progress:0' && break
    sleep 0.02
done
cli info persistence | grep -E 'rdb_last_bgsave_status' | tr -d '\r'
cli dbsize
cli strlen grows
cli zcard zset
before=$(cli debug digest)
cli debug reload
[ "$before" = "$(cli debug digest)" ] && echo "same data after a reload"
cli shutdown nosave
wait "$server"
echo "server status $?"

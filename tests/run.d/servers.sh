# The real servers, private to one run: started on free loopback ports, stopped by pid. Sourced by tests/run.

server_pids=()
# Files of the servers that have no secret: nodes that clients of ZooKeeper have written, and statements that failed.
export EH_TEST_SERVER_FILES=

free_port() {
    python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'
}

# wait_for SECONDS COMMAND…: until the command succeeds.
wait_for() {
    local deadline=$((SECONDS + $1))
    shift
    until "$@" >/dev/null 2>&1; do
        [ "$SECONDS" -lt "$deadline" ] || return 1
        sleep 0.2
    done
}

start_zookeeper() {
    local port dir=$work/zookeeper
    port=$(free_port)
    mkdir -p "$dir"
    cat >"$dir/zoo.cfg" <<CFG
tickTime=200
minSessionTimeout=500
maxSessionTimeout=60000
dataDir=$dir/data
clientPort=$port
clientPortAddress=127.0.0.1
admin.enableServer=false
maxClientCnxns=0
4lw.commands.whitelist=*
CFG
    # Its data is worthless after the run, so it need not wait for the disk.
    java -Xmx256m -Dzookeeper.forceSync=no -Dzookeeper.log.dir="$dir" -cp "/etc/zookeeper/conf:/usr/share/java/*" \
        org.apache.zookeeper.server.quorum.QuorumPeerMain "$dir/zoo.cfg" >"$dir/log" 2>&1 &
    server_pids+=("$!")
    export EH_TEST_ZOOKEEPER=127.0.0.1:$port
    EH_TEST_SERVER_FILES=$dir
    wait_for 60 zookeeper_answers "$port" || { tail -n 30 "$dir/log"; return 1; }
    echo "ZooKeeper: $EH_TEST_ZOOKEEPER"
}

zookeeper_answers() {
    python3 - "$1" <<'PY'
import socket, sys
s = socket.create_connection(("127.0.0.1", int(sys.argv[1])), 2)
s.sendall(b"ruok")
sys.exit(0 if s.recv(4) == b"imok" else 1)
PY
}

# PostgreSQL refuses to run as root, and its own user can't enter a home of mode 0700: its data lives below $work.
start_postgres() {
    local bin port dir=$work/postgres
    bin=$(ls -d /usr/lib/postgresql/*/bin | sort -V | tail -n 1)
    port=$(free_port)
    mkdir -p "$dir"
    chown postgres "$dir"
    setpriv --reuid=postgres --regid=postgres --init-groups "$bin/initdb" -D "$dir/data" -U postgres -A trust --no-sync >"$dir/initdb.log" 2>&1 ||
        { tail -n 20 "$dir/initdb.log"; return 1; }
    # No process in between, so that the pid is the server's own.
    setpriv --reuid=postgres --regid=postgres --init-groups "$bin/postgres" -D "$dir/data" -p "$port" -h 127.0.0.1 -c unix_socket_directories= \
        -c fsync=off -c max_connections=300 >"$dir/log" 2>&1 &
    server_pids+=("$!")
    export EH_TEST_POSTGRES=postgres://postgres@127.0.0.1:$port/postgres
    EH_TEST_SERVER_FILES+=:$dir/log
    wait_for 60 "$bin/pg_isready" -h 127.0.0.1 -p "$port" || { tail -n 30 "$dir/log"; return 1; }
    echo "PostgreSQL: $EH_TEST_POSTGRES"
}

# MariaDB refuses to run as root as well.
start_mariadb() {
    local port dir=$work/mariadb
    port=$(free_port)
    mkdir -p "$dir"
    chown mysql "$dir"
    mariadb-install-db --no-defaults --datadir="$dir/data" --user=mysql --auth-root-authentication-method=normal \
        --skip-test-db >"$dir/install.log" 2>&1 || { tail -n 20 "$dir/install.log"; return 1; }
    # Started by root with --user=mysql, so that the pid is the server's own. It need not wait for the disk either: each statement
    # that makes a table would wait several times, and a schema has dozens of them.
    mariadbd --no-defaults --user=mysql --datadir="$dir/data" --port="$port" --bind-address=127.0.0.1 \
        --socket="$dir/socket" --pid-file="$dir/pid" --max-connections=300 --innodb-flush-log-at-trx-commit=0 \
        --innodb-flush-method=nosync --debug-no-sync >"$dir/log" 2>&1 &
    server_pids+=("$!")
    export EH_TEST_MARIADB=mysql://root@127.0.0.1:$port/
    EH_TEST_SERVER_FILES+=:$dir/log
    wait_for 60 mariadb-admin --no-defaults --protocol=tcp -h 127.0.0.1 -P "$port" -u root ping || { tail -n 30 "$dir/log"; return 1; }
    echo "MariaDB: $EH_TEST_MARIADB"
}

stop_servers() {
    local pid
    # What a script starts in the background ignores SIGINT unless it handles it: so the Java and MariaDB servers end on
    # SIGTERM, and PostgreSQL, which waits for its clients on SIGTERM, on SIGINT.
    for pid in "${server_pids[@]+"${server_pids[@]}"}"; do kill -INT "$pid" 2>/dev/null; kill -TERM "$pid" 2>/dev/null; done
    for pid in "${server_pids[@]+"${server_pids[@]}"}"; do
        wait_for 10 process_gone "$pid" || kill -KILL "$pid" 2>/dev/null
        wait "$pid" 2>/dev/null
    done
    server_pids=()
}

process_gone() {
    [ ! -d "/proc/$1" ] || grep -q '^State:[[:space:]]*Z' "/proc/$1/status"
}

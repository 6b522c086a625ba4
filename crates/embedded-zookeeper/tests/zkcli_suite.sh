#!/usr/bin/env bash
# What ZooKeeper's own command line sees of a server: zkcli_suite.sh HOST:PORT [path of zkCli.sh]
#
# Runs a fixed list of commands and compares what comes out, numbers and times masked, with zkcli_expected.txt.
# The same file holds for the embedded server and for ZooKeeper itself. Exit status 1 if something differs.
set -euo pipefail

server=${1:?usage: zkcli_suite.sh HOST:PORT [path of zkCli.sh]}
cli=${2:-/usr/share/zookeeper/bin/zkCli.sh}
expected="$(dirname "$0")/zkcli_expected.txt"
node="/cli-$$-$RANDOM"
seen=$(mktemp)
trap 'rm -f "$seen"' EXIT

commands() {
    cat <<COMMANDS
create $node one
create -s $node/s- a
create -e $node/e b
create $node/e/child x
create $node one
get $node
get -s $node/e
stat $node
set $node two
set -s -v 1 $node three
set -v 1 $node four
ls -s $node
ls -R $node
ls $node/none
getAcl $node
setAcl $node digest:me:016djjlksVQS5RgX3M7biBGyYwY=:cdrwa
get $node
create $node/denied
addauth digest me:secret
get $node
getAcl -s $node
getEphemerals $node
getAllChildrenNumber $node
create -c $node/c
create -t 1000 $node/ttl
sync $node
stat -w $node
get -w $node
ls -w $node
set $node five
create $node/d
addWatch -m PERSISTENT_RECURSIVE $node
set $node/d six
removewatches $node
delete $node
deleteall $node
get $node
reconfig -remove 1
quit
COMMANDS
}

# Events are printed by a thread of their own, so they stand apart, in order. The one of the end is left out: the program may exit before
# that thread has printed it.
mask() {
    sed -n '/^Welcome to ZooKeeper/,$p' \
        | grep -v -e '^SLF4J' -e '^JLine' -e '^WATCHER::' -e '^$' -e '^Welcome' -e '^WatchedEvent state:Closed' \
        | sed -E -e "s#$node#/cli#g" -e 's/0x[0-9a-f]{3,}/0xN/g' -e 's/(Zxid = )0x[0-9a-f]+/\10xN/' -e 's/^([cm]time = ).*/\1T/' \
        | awk '/^WatchedEvent/ { events[++n] = $0; next } { print } END { for (i = 1; i <= n; i++) print events[i] }'
}

# Its exit status is that of the last command that failed, and some are meant to.
commands | { timeout 60 "$cli" -server "$server" 2>&1 || true; } | mask >"$seen"
if [ "${UPDATE:-}" = 1 ]; then
    cp "$seen" "$expected"
fi
if diff -u "$expected" "$seen"; then
    echo "zkCli: 1 passed, 0 failed"
else
    echo "zkCli: 0 passed, 1 failed"
    exit 1
fi

# What the tests need: Debian packages (no service is started) and Python packages in an environment of their own.
# Sourced by tests/run.

cache=${ENGINEHOUSE_TEST_CACHE:-$HOME/.cache/enginehouse-tests}
venv=$cache/venv
debian_packages=(openjdk-17-jdk-headless zookeeper postgresql mariadb-server thrift-compiler python3-venv)
python_packages=(pyspark==3.5.9 pyhive==0.7.0 impyla==0.24.0 kazoo==2.11.0 thrift==0.25.0 thrift-sasl==0.4.3 pure-sasl==0.6.2 pytest==9.2.0 psutil==7.2.2 pg8000==1.31.6 pymysql==1.2.4)

install_all() {
    install_debian_packages && install_python_packages
}

install_debian_packages() {
    local missing=() package
    for package in "${debian_packages[@]}"; do
        dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing+=("$package")
    done
    [ ${#missing[@]} -eq 0 ] && { echo "Debian packages: all there"; return 0; }
    echo "Debian packages: installing ${missing[*]}"
    # The packages' services must not start: a policy that forbids it, for as long as the installation takes.
    local policy=/usr/sbin/policy-rc.d ours=no
    if [ ! -e "$policy" ]; then
        printf '#!/bin/sh\nexit 101\n' >"$policy"
        chmod 755 "$policy"
        ours=yes
    fi
    export DEBIAN_FRONTEND=noninteractive
    { apt-get install -y --no-install-recommends "${missing[@]}" ||
        { apt-get update && apt-get install -y --no-install-recommends "${missing[@]}"; }; } >"$work/apt.log" 2>&1
    local status=$?
    [ "$ours" = yes ] && rm -f "$policy"
    [ "$status" -eq 0 ] || tail -n 20 "$work/apt.log"
    return "$status"
}

install_python_packages() {
    local wanted="${python_packages[*]}"
    if [ "$(cat "$venv/installed" 2>/dev/null)" = "$wanted" ]; then
        echo "Python packages: all there"
        return 0
    fi
    echo "Python packages: installing $wanted"
    rm -rf "$venv"
    mkdir -p "$cache"
    python3 -m venv "$venv" &&
        "$venv/bin/pip" install --quiet "${python_packages[@]}" >"$work/pip.log" 2>&1 &&
        echo "$wanted" >"$venv/installed" && return 0
    tail -n 20 "$work/pip.log"
    return 1
}

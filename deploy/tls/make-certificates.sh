#!/bin/sh
# Certificates for a Dask cluster that asks everybody for one: scheduler, workers and clients.
#
#   deploy/tls/make-certificates.sh DIR [HOST ...]
#
# writes ca.pem, cert.pem and key.pem into DIR. One certificate serves all three roles; it names the hosts
# given, localhost and 127.0.0.1. Who has key.pem belongs to the cluster and can execute code on all of it, so
# hand it out like a password. The authority's own key is not kept: nobody can issue a further certificate, and
# to add hosts or to lock somebody out, make a new DIR and restart the cluster with it.
#
# DAYS (825) says how long they are valid. Needs openssl 1.1.1 or later.
set -eu

fail() {
    echo "make-certificates.sh: $1" >&2
    exit 2
}

dir=${1:-}
case $dir in
    '' | -*) fail "usage: make-certificates.sh DIR [HOST ...]" ;;
    *) ;;
esac
shift
days=${DAYS:-825}
case $days in
    '' | *[!0-9]*) fail "DAYS=$days; a number of days" ;;
    *) ;;
esac
for file in ca.pem cert.pem key.pem; do
    [ ! -e "$dir/$file" ] || fail "$dir/$file exists and is not overwritten; name another directory"
done

names=DNS:localhost,IP:127.0.0.1
for host in "$@"; do
    case $host in
        '' | *[!A-Za-z0-9.:*_-]*) fail "'$host' is neither a host name nor an address" ;;
        *:*) names=$names,IP:$host ;;                  # IPv6
        *[!0-9.]*) names=$names,DNS:$host ;;
        *.*.*.*) names=$names,IP:$host ;;
        *) fail "'$host' is neither a host name nor an address" ;;
    esac
done

umask 077
mkdir -p "$dir"
work=$(mktemp -d "$dir/.making.XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM

cat >"$work/settings" <<END
[req]
prompt = no
distinguished_name = subject
[subject]
CN = bigembed
[authority]
basicConstraints = critical, CA:TRUE, pathlen:0
keyUsage = critical, keyCertSign, cRLSign
subjectKeyIdentifier = hash
[member]
basicConstraints = critical, CA:FALSE
keyUsage = critical, digitalSignature
extendedKeyUsage = serverAuth, clientAuth
subjectKeyIdentifier = hash
authorityKeyIdentifier = keyid
subjectAltName = $names
END

quietly() {
    "$@" >"$work/said" 2>&1 || {
        cat "$work/said" >&2
        fail "openssl failed: $*"
    }
}

new_key() {
    quietly openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -out "$1"
}

new_key "$work/ca.key"
quietly openssl req -x509 -new -key "$work/ca.key" -sha256 -days "$days" -config "$work/settings" \
    -subj "/CN=bigembed authority" -extensions authority -out "$work/ca.pem"
new_key "$work/key.pem"
quietly openssl req -new -key "$work/key.pem" -sha256 -config "$work/settings" -out "$work/request"
serial=$(openssl rand -hex 16)
quietly openssl x509 -req -in "$work/request" -sha256 -days "$days" -CA "$work/ca.pem" -CAkey "$work/ca.key" \
    -set_serial "0x$serial" -extfile "$work/settings" -extensions member -out "$work/cert.pem"
quietly openssl verify -CAfile "$work/ca.pem" "$work/cert.pem"

set -C # (what somebody else wrote meanwhile is not overwritten either)
for file in key.pem cert.pem ca.pem; do
    cat "$work/$file" >"$dir/$file" || fail "$dir/$file cannot be written, or is there already"
done
chmod 644 "$dir/cert.pem" "$dir/ca.pem"
echo "$dir: ca.pem, cert.pem, key.pem for $names, valid $days days"

#!/usr/bin/env bash
# How the certificates of this folder were made. They are for tests on the loopback interface only:
# their keys are public. Valid for 100 years.
set -eu
cd "$(dirname "$0")"

authority() { # name
    openssl req -x509 -newkey rsa:2048 -sha256 -nodes -days 36500 -subj "/CN=gimbalmq test $1" \
        -addext "basicConstraints=critical,CA:TRUE" -addext "keyUsage=critical,keyCertSign,cRLSign" \
        -keyout "$1.key" -out "$1.pem"
}

signed() { # name, purpose, subjectAltName
    openssl req -newkey rsa:2048 -sha256 -nodes -subj "/CN=gimbalmq test $1" \
        -keyout "$1.key" -out "$1.csr"
    openssl x509 -req -sha256 -days 36500 -in "$1.csr" -CA authority.pem -CAkey authority.key \
        -CAcreateserial -out "$1.pem" -extfile <(printf '%s\n' "basicConstraints=CA:FALSE" \
        "extendedKeyUsage=$2" "subjectAltName=$3")
    rm "$1.csr"
}

authority authority
signed server serverAuth IP:127.0.0.1,DNS:localhost
signed elsewhere serverAuth DNS:elsewhere.example
signed client clientAuth DNS:client.example
rm -f authority.key authority.srl

#!/usr/bin/env bash
# Builds Terraform from its Go module: build-terraform.sh FOLDER PROGRAM, where FOLDER has the go.mod
# that says which version.
#
# Most of Terraform's backends are Go modules of their own that are published nowhere, so this Terraform goes
# without them: it keeps states in files, or asks for them over HTTP. The rest is built with the versions that
# Terraform's own go.mod has.
set -euo pipefail
folder=$1 program=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

cd "$folder"
go mod download github.com/hashicorp/terraform
cp -r "$(go list -m -f '{{.Dir}}' github.com/hashicorp/terraform)/." "$work"
chmod -R u+w "$work"
cd "$work"
sed -i '/^godebug/,/^)\?$/d' go.mod # newer versions of Go refuse what they no longer know
backends=internal/backend/init/init.go
for module in $(sed -nE 's/^replace (.*) => .*/\1/p' go.mod); do
  name=$(sed -nE "s|^\t(\w+) \"$module\"\$|\1|p" $backends)
  [ -z "$name" ] || sed -i "/\b$name\b/d" $backends
  go mod edit -droprequire "$module" -dropreplace "$module"
done
go build -ldflags "-s -w -X github.com/hashicorp/terraform/version.dev=no" -o "$program" .

# A real sshd on every host of hosts.sh: source this after it, call sshd_up after hosts_up. The keys and
# settings of the machine are not touched: pass $ssh_options to ssh (--ssh-options, or SSH_OPTIONS).
#   sshd_can; sshd_up; keys_revoke I; keys_restore I
sshd_can() {
    command -v ssh >/dev/null && command -v ssh-keygen >/dev/null && [ -x /usr/sbin/sshd ] ||
        { echo "needs openssh-server"; return 1; }
}

sshd_up() {
    local i dir=$hosts_dir/ssh
    mkdir -p "$dir"
    trap 'sshd_down; hosts_down' EXIT
    ssh-keygen -q -t ed25519 -N '' -f "$dir/key"
    ssh-keygen -q -t ed25519 -N '' -f "$dir/hostkey"
    printf '%s\n' "IdentityFile $dir/key" "IdentitiesOnly yes" "StrictHostKeyChecking no" \
        "UserKnownHostsFile /dev/null" "PasswordAuthentication no" "User root" "ControlMaster no" >"$dir/config"
    # shellcheck disable=SC2034 # used by the files that source this
    ssh_options="-F $dir/config"
    for i in $(seq "$hosts_count"); do
        cp "$dir/key.pub" "$dir/keys$i"
        printf '%s\n' "Port 22" "HostKey $dir/hostkey" "PermitRootLogin prohibit-password" \
            "PasswordAuthentication no" "UsePAM no" "StrictModes no" "MaxStartups 100" "PidFile $dir/pid$i" \
            "AuthorizedKeysFile $dir/keys$i" >"$dir/sshd$i"
        on "$i" sh -c "mount -t tmpfs t /run && mkdir -p /run/sshd && exec /usr/sbin/sshd -f $dir/sshd$i"
    done
    for i in $(seq "$hosts_count"); do
        for _ in $(seq 100); do [ -s "$dir/pid$i" ] && break; sleep .02; done
    done
}

sshd_down() {
    local i
    for i in $(seq "$hosts_count"); do kill "$(cat "$hosts_dir/ssh/pid$i")" 2>/dev/null; done
}

keys_revoke() { : >"$hosts_dir/ssh/keys$1"; }
keys_restore() { cp "$hosts_dir/ssh/key.pub" "$hosts_dir/ssh/keys$1"; }

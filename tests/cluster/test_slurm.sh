#!/usr/bin/env bash
# Ranks started by srun, on hosts made of network namespaces that form a real Slurm cluster, with munge on all of them.
. "$(dirname "$0")/../tap.sh"
. "$(dirname "$0")/hosts.sh"
shoal=$SHOAL_BUILD/shoal demo=$root/models/demo
work=$(mktemp -d) && cd "$work" || exit 1
unset "${!SHOAL_@}" # SHOAL_BUILD is not a setting of the program
PATH=$PATH:/usr/sbin
for tool in srun slurmd slurmctld munged; do
    command -v $tool >/dev/null || { skip "srun" "$tool is missing"; cd / && rm -rf "$work"; done_testing; }
done
if ! why=$(hosts_can); then skip "srun" "$why"; cd / && rm -rf "$work"; done_testing; fi

hosts_up 3
trap 'cluster_down; hosts_down' EXIT
mkdir etc && cat >etc/slurm.conf <<CONF
ClusterName=shoal
SlurmctldHost=h1(10.77.0.1)
AuthType=auth/munge
SlurmUser=root
SlurmdUser=root
ProctrackType=proctrack/pgid
TaskPlugin=task/none
SelectType=select/cons_tres
ReturnToService=2
MpiDefault=none
StateSaveLocation=$work/ctld
SlurmdSpoolDir=$work/spool.%n
SlurmctldPidFile=$work/ctld.pid
SlurmdPidFile=$work/%n.pid
SlurmctldLogFile=$work/ctld.log
SlurmdLogFile=$work/%n.log
SlurmdParameters=config_overrides
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
$(for i in 1 2 3; do echo "NodeName=h$i NodeAddr=10.77.0.$i CPUs=4 RealMemory=1000 State=UNKNOWN"; done)
PartitionName=p Nodes=h[1-3] Default=YES MaxTime=INFINITE State=UP
CONF
echo CgroupPlugin=cgroup/v1 >etc/cgroup.conf # it does not look for cgroups then, which a namespace may hide
idle() { [ "$(on 1 sinfo -h -t idle -o %D 2>/dev/null)" = 3 ]; }
cluster_up() {
    mkdir -p ctld spool.h1 spool.h2 spool.h3 /etc/slurm
    head -c 64 /dev/urandom >munge.key && chown munge munge.key && chmod 400 munge.key
    install -d -o munge -m 755 "$work/munge" && chmod 755 "$work"
    local i
    for i in 1 2 3; do
        on $i mount --bind "$work/etc" /etc/slurm
        on $i sh -c 'mount -t tmpfs t /run && install -d -o munge -m 755 /run/munge'
        on $i su munge -s /bin/sh -c "munged --key-file=$work/munge.key --pid-file=/run/munge/munged.pid \
            --log-file=$work/munge/$i.log --seed-file=$work/munge/$i.seed --force" || return 1
        on $i cat /run/munge/munged.pid >"$work/munged.$i.pid"
    done
    on 1 slurmctld && for i in 1 2 3; do on $i slurmd -N h$i || return 1; done
    within 20 idle || { on 1 sinfo; tail -n 5 ./*.log; return 1; }
}
cluster_down() {
    local p pids i; pids=$(cat "$work"/*.pid 2>/dev/null)
    for p in $pids; do kill "$p" 2>/dev/null; done
    for i in $(seq 50); do
        for p in $pids; do kill -0 "$p" 2>/dev/null && { sleep .1; continue 2; }; done
        break
    done
}

run() { on 1 timeout -k 5 60 srun --chdir="$work" --kill-on-bad-exit=1 "$@"; }
generate=("$shoal" generate --model "$demo" --prompt "Once upon a time" --max-tokens 16)
same() { "${generate[@]}" >want 2>/dev/null; run "$@" "${generate[@]}" >got 2>err && cmp got want; }

check "a Slurm cluster of 3 hosts starts" cluster_up
[ $failures = 0 ] || { cd / && done_testing; }
export SHOAL_TOKEN; SHOAL_TOKEN=$("$shoal" token)
check "a model on 3 hosts of srun gives the same answer as one rank" same -N3 -n3
check "a model on 4 ranks of 2 hosts gives the same answer as one rank" same -N2 -n4
without_token() { SHOAL_TOKEN='' same "$@"; }
check "a model on 2 ranks of one host needs no token" without_token -N1 -n2
# Both tasks end by themselves: one that is killed may lose its last words.
no_token() { ! without_token -N2 -n2 --kill-on-bad-exit=0 && grep -q "cluster token" err; }
check "several hosts of srun are refused without a token, with a hint" no_token
two_steps() {
    cat >job.sh <<JOB
srun -N2 -n2 --overlap "$shoal" linktest --quick --sizes 4K --rounds 3 >a.out 2>&1 & a=\$!
srun -N2 -n2 --overlap "$shoal" linktest --quick --sizes 4K --rounds 3 >b.out 2>&1 && wait \$a
JOB
    on 1 timeout -k 5 60 salloc -N2 -n2 --chdir="$work" bash job.sh && grep -q "verdict: pass" a.out &&
        grep -q "verdict: pass" b.out || { cat a.out b.out; return 1; }
}
check "steps of one job do not connect to each other" two_steps
check "a single task is a single rank" exits 0 run -N1 -n1 "${generate[@]}"
url=http://127.0.0.1:8472
healthy() { on 1 curl -fs -o health $url/health; }
ask() {
    on 1 curl -fs -m 20 -H 'content-type: application/json' \
        -d '{"prompt":"Once upon a time","max_tokens":8,"temperature":0}' $url/v1/completions
}
ended() { ! kill -0 "$main" 2>/dev/null; }
serves() {
    on_exec 1 srun -N3 -n3 --chdir="$work" "$shoal" serve --port 8472 >serve.out 2>&1 & main=$!
    within 20 healthy && ask | grep -q '"text":" there was' && kill -TERM "$main" && within 20 ended ||
        { cat serve.out; kill -9 "$main"; return 1; }
}
check "serve on 3 hosts of srun answers, and stops on SIGTERM" serves
no_job() { [ -z "$(on 1 squeue -h)" ]; }
batch() { # the first host of a job on all of them is h1
    PATH=${shoal%/*}:$PATH on 1 sbatch --chdir="$work" --output=job.out --nodes=3 \
        "$root/packaging/examples/shoal.sbatch" --port 8472 && within 40 healthy &&
        ask | grep -q '"text":" there was' && grep -q "is on h1" job.out &&
        on 1 scancel --name=shoal && within 40 no_job || { cat job.out; return 1; }
}
check "the batch script serves on all hosts of its job, and ends with it" batch
cluster_down
cd / && rm -rf "$work"
done_testing

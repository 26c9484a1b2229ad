#!/usr/bin/env bash
# Ranks started by mpirun: on this machine, and on hosts made of network namespaces with an sshd each. Data goes over
# MPI (--backend mpi) or, as everywhere, over sockets; then MPI is only used to find rank 0.
. "$(dirname "$0")/../tap.sh"
. "$(dirname "$0")/hosts.sh"
. "$(dirname "$0")/sshd.sh"
shoal=$SHOAL_BUILD/shoal suite=$SHOAL_BUILD/tests/unit/coll/test_coll demo=$root/models/demo
work=$(mktemp -d) && cd "$work" || exit 1
build=$SHOAL_BUILD
unset "${!SHOAL_@}" # SHOAL_BUILD is not a setting of the program
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export ASAN_OPTIONS=detect_leaks=0 # the MPI libraries leak at exit
case $build in *san) slow=4 ;; *) slow=1 ;; esac
case $build in *tsan)
    skip "ranks over MPI" "MPI libraries are not built for the thread sanitizer"; done_testing ;;
esac

limit=(timeout -k 5 $((120 * slow)))
ompi=("${limit[@]}" mpirun.openmpi --bind-to none --oversubscribe)
mpich=("${limit[@]}" mpirun.mpich)
lo=("${ompi[@]}" --mca btl_tcp_if_include lo --mca oob_tcp_if_include lo)
is_there() { command -v "mpirun.$1" >/dev/null && [ -f "$build/shoal-mpi-$1.so" ]; }
generate=("$shoal" generate --model "$demo" --prompt "Once upon a time" --max-tokens 16)
# same "FLAGS" mpirun...: ranks started with those flags give the same answer as one rank
same() {
    local flags; read -ra flags <<<"$1"; shift
    [ -s want ] || "${generate[@]}" >want 2>/dev/null
    "$@" "${generate[@]}" "${flags[@]}" >got 2>err && cmp got want
}
all_pass() { "$@" "$suite" "$build" >suite.out 2>&1 || { cat suite.out; return 1; }; }

check "--backend mpi without mpirun says how to start" refuses 1 "mpirun|MPI is not available" \
    "$shoal" linktest --ranks 2 --backend mpi
if ! is_there openmpi; then
    skip "ranks over Open MPI" "mpirun.openmpi or the plugin is missing: MPI was not available when this was built"
else
    check "the tests of the collectives pass over Open MPI: 2 ranks" all_pass "${lo[@]}" -n 2
    check "the tests of the collectives pass over Open MPI: 4 ranks, sockets only" \
        all_pass "${lo[@]}" --mca btl tcp,self -n 4
    check "a model on 2 ranks over Open MPI gives the same answer as one rank" same "--backend mpi" "${lo[@]}" -n 2
    check "a model on 3 ranks of mpirun over shared memory gives the same answer as one rank" same "" "${lo[@]}" -n 3
    check "a missing library is named" refuses 1 libnone.so.1 \
        "${lo[@]}" -n 2 "$shoal" linktest --backend mpi --mpi-library libnone.so.1
    check "more ranks than were launched are refused" refuses 1 "2 ranks were launched" \
        "${lo[@]}" -n 2 "$shoal" linktest --ranks 3
fi
if is_there mpich; then
    check "the tests of the collectives pass over MPICH: 2 ranks" all_pass "${mpich[@]}" -n 2
    check "a model on 2 ranks over MPICH gives the same answer as one rank" same "--backend mpi" "${mpich[@]}" -n 2
    check "a model on 2 ranks of MPICH's mpirun over sockets" same "--transport tcp" "${mpich[@]}" -n 2
else skip "ranks over MPICH" "mpirun.mpich or the plugin is missing"; fi

if ! is_there openmpi; then cd / && rm -rf "$work"; done_testing; fi
why_not() {
    case $build in
    *san) echo "the same ran on one machine, and sanitizer builds are slow" ;;
    *) hosts_can && sshd_can && return 1 ;;
    esac
    return 0
}
if why=$(why_not); then
    skip "mpirun over several hosts" "$why"
    cd / && rm -rf "$work"; done_testing
fi
hosts_up 3 && sshd_up
printf '#!/bin/sh\nexec ssh -q %s "$@"\n' "$ssh_options" >"$work/ssh" && chmod +x "$work/ssh"
nic=(--mca btl_tcp_if_include eth0 --mca oob_tcp_if_include eth0 --mca plm_rsh_agent "$work/ssh")
hosts3=("${ompi[@]}" "${nic[@]}" --wdir "$work" --host "h1,h2,h3")
three=(on 1 "${hosts3[@]}")
check "the tests of the collectives pass over Open MPI between 3 hosts" all_pass "${three[@]}"
check "a model on 3 hosts over Open MPI gives the same answer as one rank" same "--backend mpi" "${three[@]}"
check "a model on 3 hosts of mpirun over encrypted sockets gives the same answer as one rank" same "" "${three[@]}"
linktest=("${three[@]}" "$shoal" linktest --quick --sizes 4K --rounds 3)
encrypted() { exits 0 "${linktest[@]}" && grep -q "self tls tls" out; }
check "connections between hosts use TLS, with a token made by the ranks of mpirun" encrypted
cat >hosts.json <<'JSON'
{"backend": "mpi", "hosts": [{"ssh": "h1", "ips": ["10.77.0.1"]}, {"ssh": "h2", "ips": ["10.77.0.2"]},
    {"ssh": "h3", "ips": ["10.77.0.3"]}]}
JSON
by_hostfile() {
    exits 0 "${linktest[@]}" --hostfile hosts.json --token 0123456789abcdef0123456789abcdef &&
        grep -q "self mpi mpi" out
}
check "a hostfile can select MPI" by_hostfile
ids_alone() { sed -E 's/=-?[0-9.]+//g' "$1"; }
logits() {
    local command=("$shoal" logits --model "$demo" --ids "5,9,3" --activations f32)
    "${command[@]}" >one.txt && exits 0 "${three[@]}" "${command[@]}" &&
        [ "$(ids_alone one.txt)" = "$(ids_alone out)" ] && [ -n "$(ids_alone out)" ]
}
check "logits are the same as on one rank" logits
bench() { exits 0 "${three[@]}" "$shoal" bench --model "$demo" --prompt 16 --generate 4 --rounds 1 && [ -s out ]; }
check "bench runs on the hosts of mpirun" bench

healthy() { on 1 curl -fs -o health http://127.0.0.1:8471/health; }
serving() { # starts serve under mpirun on 3 hosts and waits until rank 0 answers; its pid is in $main
    on_exec 1 "${hosts3[@]}" "$shoal" serve --port 8471 "$@" >serve.out 2>&1 & main=$!
    within $((15 * slow)) healthy || { cat serve.out; return 1; }
}
ask() {
    on 1 curl -fs -m 20 -H 'content-type: application/json' \
        -d '{"prompt":"Once upon a time","max_tokens":8,"temperature":0}' http://127.0.0.1:8471/v1/completions
}
ended() { ! kill -0 "$main" 2>/dev/null; }
over() { # SECONDS: it has exited; its code is in $code
    within $(($1 * slow)) ended || { echo "still running"; kill -9 "$main"; return 1; }
    wait "$main"; code=$?
}
# mpirun may exit before its ranks, and these before the processes of the server that they started.
left() { local i; for i in 1 2 3; do shoals_on $i; done; }
none_left() {
    local p
    within $((20 * slow)) gives "" left && return
    for p in $(left); do tr '\0' ' ' <"/proc/$p/cmdline"; kill -9 "$p"; done
    return 1
}
served() { serving "$@" && ask | grep -q '"text":" there was' && kill -TERM "$main" && over 8 && none_left; }
check "serve on 3 hosts of mpirun answers, and stops on SIGTERM" served
check "serve over MPI on 3 hosts answers, and stops on SIGTERM" served --backend mpi
check "rank 0 says that MPI does not encrypt" grep -q "unencrypted, over MPI" serve.out
abandoned() { # the rank on the host of mpirun is its child, the others are children of its daemons
    serving && ask >/dev/null && kill -9 "$(pgrep -P "$main" mpirun)" && over 5 && none_left
}
check "ranks exit when their mpirun is killed" abandoned
lost() { # signal: a rank of a server over MPI
    # shellcheck disable=SC2046
    serving --backend mpi && ask >/dev/null && kill "-$1" $(shoals_on 2) && over 10; local rc=$?
    # shellcheck disable=SC2046
    kill -9 $(shoals_on 2) 2>/dev/null
    none_left && [ $rc = 0 ] && [ "$code" != 0 ] && grep -qE "$2" serve.out || { cat serve.out; return 1; }
}
check "kill -9 of a rank over MPI ends the job, and the rank is named" lost KILL "rank 1 (at .* was lost|with PID)"
check "SIGSTOP of a rank over MPI ends the job, and the rank is named" lost STOP "rank 1 at .* silent"

if is_there mpich; then
    two=(on 1 "${mpich[@]}" -launcher-exec "$work/ssh" -iface eth0 -wdir "$work" -hosts "h1,h2" -n 2)
    check "the tests of the collectives pass over MPICH between 2 hosts" all_pass "${two[@]}"
    check "a model on 2 hosts over MPICH gives the same answer as one rank" same "--backend mpi" "${two[@]}"
    check "a model on 2 hosts of MPICH's mpirun over sockets" same "" "${two[@]}"
fi
cd / && rm -rf "$work"
done_testing

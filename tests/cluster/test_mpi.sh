#!/usr/bin/env bash
# Ranks that mpirun starts: on this machine, and between hosts made of network namespaces with an sshd each. Data goes over
# MPI (--backend mpi) or, as everywhere, over sockets; then MPI only tells where rank 0 is.
. "$(dirname "$0")/../tap.sh"
. "$(dirname "$0")/hosts.sh"
. "$(dirname "$0")/sshd.sh"
shoal=$SHOAL_BUILD/shoal suite=$SHOAL_BUILD/tests/unit/coll/test_coll demo=$root/models/demo
work=$(mktemp -d) && cd "$work" || exit 1
build=$SHOAL_BUILD
unset "${!SHOAL_@}" # SHOAL_BUILD is no setting of the program
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 ASAN_OPTIONS=detect_leaks=0 # libraries leak at their end
case $build in *san) slow=4 ;; *) slow=1 ;; esac
case $build in *tsan) skip "ranks over MPI" "MPI libraries are not built for the thread sanitizer"; done_testing ;; esac

ompi="timeout -k 5 $((40 * slow)) mpirun.openmpi --bind-to none --oversubscribe"
mpich="timeout -k 5 $((40 * slow)) mpirun.mpich"
lo="--mca btl_tcp_if_include lo --mca oob_tcp_if_include lo"
has() { command -v "mpirun.$1" >/dev/null && [ -f "$build/shoal-mpi-$1.so" ]; }
one_rank() { [ -s want ] || "$shoal" generate --model "$demo" --prompt "Once upon a time" --max-tokens 16 >want 2>/dev/null; }
same() { one_rank; "$@" "$shoal" generate --model "$demo" --prompt "Once upon a time" --max-tokens 16 $more >got 2>err && cmp got want; }
cut_ids() { sed -E 's/=-?[0-9.]+//g' "$1"; }
all_pass() { "$@" "$suite" "$build" >suite.out 2>&1 || { cat suite.out; return 1; }; }

check "--backend mpi without mpirun says how to start" \
    'exits 1 "$shoal" linktest --ranks 2 --backend mpi && grep -qE "mpirun|MPI is not in this program" err'
if ! has openmpi; then
    skip "ranks over Open MPI" "mpirun.openmpi or the plugin is missing: MPI was not there when this was built"
else
    check "the tests of the collectives pass over Open MPI: 2 ranks" 'all_pass $ompi $lo -n 2'
    check "the tests of the collectives pass over Open MPI: 4 ranks, sockets only" 'all_pass $ompi $lo --mca btl tcp,self -n 4'
    check "a model on 2 ranks over Open MPI answers as one rank does" 'more="--backend mpi" same $ompi $lo -n 2'
    check "a model on 3 ranks of mpirun over shared memory answers as one rank does" 'more= same $ompi $lo -n 3'
    check "a library that is not there is named" 'exits 1 $ompi $lo -n 2 "$shoal" linktest --backend mpi --mpi-library libnone.so.1 && grep -q libnone.so.1 err'
    check "more ranks than were launched are refused" 'exits 1 $ompi $lo -n 2 "$shoal" linktest --ranks 3 && grep -q "2 were launched" err'
fi
if has mpich; then
    check "the tests of the collectives pass over MPICH: 2 ranks" 'all_pass $mpich -n 2'
    check "a model on 2 ranks over MPICH answers as one rank does" 'more="--backend mpi" same $mpich -n 2'
    check "a model on 2 ranks of MPICH's mpirun over sockets" 'more="--transport tcp" same $mpich -n 2'
else skip "ranks over MPICH" "mpirun.mpich or the plugin is missing"; fi

if ! has openmpi; then cd / && rm -rf "$work"; done_testing; fi
why_not() { case $build in *san) echo "the same ran on one machine, and a sanitizer is slow" ;; *) hosts_can && sshd_can && return 1 ;; esac; }
if why=$(why_not); then
    skip "mpirun over several hosts" "$why"
    cd / && rm -rf "$work"; done_testing
fi
hosts_up 3 && sshd_up
printf '#!/bin/sh\nexec ssh -q %s "$@"\n' "$ssh_options" >"$work/ssh" && chmod +x "$work/ssh"
nic="--mca btl_tcp_if_include eth0 --mca oob_tcp_if_include eth0 --mca plm_rsh_agent $work/ssh"
hosts3="$ompi $nic --wdir $work --host h1,h2,h3"
three="on 1 $hosts3"
check "the tests of the collectives pass over Open MPI between 3 hosts" 'all_pass $three'
check "a model on 3 hosts over Open MPI answers as one rank does" 'more="--backend mpi" same $three'
check "a model on 3 hosts of mpirun over sockets, encrypted, answers as one rank does" 'more= same $three'
check "the path between hosts is TLS with a token that mpirun's ranks made" 'exits 0 $three "$shoal" linktest --quick --sizes 4K --rounds 3 && grep -q "self tls tls" out'
echo '{"backend": "mpi", "hosts": [{"ssh": "h1", "ips": ["10.77.0.1"]}, {"ssh": "h2", "ips": ["10.77.0.2"]}, {"ssh": "h3", "ips": ["10.77.0.3"]}]}' >hosts.json
check "a hostfile may ask for MPI" 'exits 0 $three "$shoal" linktest --quick --sizes 4K --rounds 3 --hostfile hosts.json --token 0123456789abcdef0123456789abcdef && grep -q "self mpi mpi" out'
check "logits are the same as on one rank" '
    "$shoal" logits --model "$demo" --ids 5,9,3 --activations f32 >one.txt && exits 0 $three "$shoal" logits --model "$demo" --ids 5,9,3 --activations f32 &&
    [ "$(cut_ids one.txt)" = "$(cut_ids out)" ] && [ -n "$(cut_ids out)" ]'
check "bench runs on the hosts of mpirun" 'exits 0 $three "$shoal" bench --model "$demo" --prompt 16 --generate 4 --rounds 1 && [ -s out ]'

serving() { # serve under mpirun on 3 hosts until rank 0 answers; its pid in $main
    on_exec 1 $hosts3 "$shoal" serve --port 8471 "$@" >serve.out 2>&1 & main=$!
    local i; for i in $(seq $((150 * slow))); do on 1 curl -fs -o health http://127.0.0.1:8471/health && return; sleep .1; done
    cat serve.out; return 1
}
ask() { on 1 curl -fs -m 20 -H 'content-type: application/json' -d '{"prompt":"Once upon a time","max_tokens":8,"temperature":0}' http://127.0.0.1:8471/v1/completions; }
rank_on() { pgrep -f "^$shoal $2" | while read -r p; do [ "$(readlink /proc/$p/ns/net)" = "$(readlink /proc/$(cat "$hosts_dir/$1.pid")/ns/net)" ] && echo "$p"; done; }
over() { local i; for i in $(seq $(($1 * 10 * slow))); do kill -0 "$main" 2>/dev/null || { wait "$main"; code=$?; return 0; }; sleep .1; done; echo "still running"; kill -9 "$main"; return 1; }
# mpirun may end before its ranks do, and they before the parts of a server that they started.
none_left() { local i; for i in $(seq $((200 * slow))); do pgrep -f "^$shoal serve" >/dev/null || return 0; sleep .1; done; echo "left behind:"; pgrep -af "^$shoal serve"; return 1; }
served() { serving "$@" && ask | grep -q '"text":" there was' && kill -TERM "$main" && over 8 && none_left; }
check "serve on 3 hosts of mpirun answers, and ends on SIGTERM" 'served'
check "serve over MPI on 3 hosts answers, and ends on SIGTERM" 'served --backend mpi'
lost() { # signal: a rank of a server over MPI
    serving --backend mpi && ask >/dev/null && kill "-$1" $(rank_on 2 serve) && over 10; local rc=$?
    kill -9 $(rank_on 2 serve) 2>/dev/null
    none_left && [ $rc = 0 ] && [ "$code" != 0 ] && grep -qE "$2" serve.out || { cat serve.out; return 1; }
}
check "kill -9 of a rank over MPI ends the job, and the rank is named" 'lost KILL "rank 1 (at .* was lost|with PID)"'
check "SIGSTOP of a rank over MPI ends the job, and the rank is named" 'lost STOP "rank 1 at .* silent"'

if has mpich; then
    two="on 1 $mpich -launcher-exec $work/ssh -iface eth0 -wdir $work -hosts h1,h2 -n 2"
    check "the tests of the collectives pass over MPICH between 2 hosts" 'all_pass $two'
    check "a model on 2 hosts over MPICH answers as one rank does" 'more="--backend mpi" same $two'
    check "a model on 2 hosts of MPICH's mpirun over sockets" 'more= same $two'
fi
cd / && rm -rf "$work"
done_testing

#!/usr/bin/env bash
# How much memory a rank needs, and how ranks may differ. Ranks are started by hand, each with its own environment.
. "$(dirname "$0")/../tap.sh"
shoal=$SHOAL_BUILD/shoal build=$SHOAL_BUILD
work=$(mktemp -d) && cd "$work" || exit 1
unset "${!SHOAL_@}" # SHOAL_BUILD is not a setting of the program
port=$(free_port)

${CC:-cc} -O2 -D_GNU_SOURCE -o peak "$root/tests/cluster/peak.c" || exit 1
# start RANK RANKS command...: in the background, its pid in $pid; its peak memory goes to RANK.peak, in KiB
start() {
    local rank=$1 ranks=$2; shift 2
    ./peak "$rank.peak" "$@" --rank "$rank" --ranks "$ranks" --coordinator "127.0.0.1:$port" \
        >"$rank.out" 2>"$rank.err" &
    pid=$!
}
two() { start 1 2 "$@"; local one=$pid; start 0 2 "$@"; wait $pid && wait $one || { cat 0.err 1.err; return 1; }; }

generate=("$shoal" generate --model "$root/models/demo")
levels() {
    local l
    for l in generic avx2 avx512 avx512vnni neon dotprod i8mm; do
        "${generate[@]}" --cpu $l --ids 1 --max-tokens 1 >/dev/null 2>&1 && echo $l
    done
}
best=$(levels | tail -n 1)
mixed() { # activations; in f32 the answer must be the same as that of one rank
    local first second command=("${generate[@]}" --max-tokens 24 --prompt "Once upon a time" --activations "$1")
    "${command[@]}" >want 2>/dev/null
    for first in generic $best; do
        second=$([ $first = generic ] && echo "$best" || echo generic)
        start 1 2 env SHOAL_CPU="$second" "${command[@]}"; local one=$pid
        start 0 2 env SHOAL_CPU="$first" "${command[@]}"
        wait $pid && wait $one && [ -s 0.out ] || { cat 0.err 1.err; return 1; }
        [ "$1" = int8 ] || cmp 0.out want || return 1
    done
}
if [ "$best" = generic ]; then skip "ranks on two kinds of CPUs" "this CPU supports only the generic level"; else
    check "a generic rank and a rank with $best give the same answer as one rank, in f32" mixed f32
    check "a generic rank and a rank with $best work together in int8" mixed int8
fi

case $build in *san)
    skip "memory of two ranks" "sanitizers need memory of their own"
    cd / && rm -rf "$work"; done_testing ;;
esac
cat >config.json <<CONFIG
{"model_type": "llama", "hidden_size": 2048, "num_hidden_layers": 6, "intermediate_size": 8192,
 "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 64, "vocab_size": 65536,
 "rms_norm_eps": 1e-5, "rope_theta": 500000.0, "max_position_embeddings": 4096, "tie_word_embeddings": true,
 "quantization": {"bits": 4, "group_size": 64}}
CONFIG
run=("$shoal" generate --model made --ids "1,2,3" --max-tokens 24 --context 512 --threads 1)
halves() {
    "$shoal" synth --shape config.json --out made >/dev/null || return 1
    start 0 1 "${run[@]}" && wait $pid && local whole; whole=$(cat 0.peak)
    two "${run[@]}" && echo "one rank $whole KiB, two $(cat 0.peak) and $(cat 1.peak)" &&
        [ "$(cat 0.peak)" -le $((whole / 2 + links)) ] && [ "$(cat 1.peak)" -le $((whole / 2 + links)) ]
}
links=24576 # KiB for the buffers of the links; less than 5 % of a model of 1 GB or more
check "each of two ranks needs half the memory of one rank, plus 24 MiB" halves
cd / && rm -rf "$work"
done_testing

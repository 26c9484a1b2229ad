#!/usr/bin/env bash
# Beside a process that never rests, on one core, decoding keeps its share: threads that wait give way.
. "$(dirname "$0")/../tap.sh"
shoal=$SHOAL_BUILD/shoal
work=$(mktemp -d /tmp/shoal-busy-XXXXXX)
cd "$work" || exit 1
hog=
trap 'kill $hog 2>/dev/null; rm -rf "$work"' EXIT
claims=("two threads keep 40 % of their speed beside a busy core" "so do two ranks of one thread")
why=
[ "$(nproc)" -ge 2 ] || why="one processor"
command -v taskset >/dev/null || why="taskset is missing"
case $SHOAL_BUILD in *san) why="not for sanitizers" ;; esac
if [ -n "$why" ]; then for claim in "${claims[@]}"; do skip "$claim" "$why"; done; done_testing; fi

cat >config.json <<'END'
{"model_type": "llama", "hidden_size": 2048, "num_hidden_layers": 4, "intermediate_size": 8192, "num_attention_heads": 32,
 "num_key_value_heads": 8, "vocab_size": 4096, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "max_position_embeddings": 2048,
 "tie_word_embeddings": true}
END
"$shoal" synth --shape config.json --out model || exit 1
speed() { "$shoal" bench --model model --prompt 0 --generate 64 --rounds 1 --json "$@" 2>/dev/null | tr -d '\n' |
    sed -E 's/.*"generate":[^}]*"tokens_per_s":[^0-9]*([0-9]+).*/\1/'; }
keeps() { # FLAGS...: the best of three, since others may use the machine too
    local quiet busy share best=0
    for _ in 1 2 3; do
        quiet=$(speed "$@")
        taskset -c 0 bash -c 'while :; do :; done' & hog=$!
        busy=$(speed "$@")
        kill $hog; wait $hog 2>/dev/null
        share=$((100 * busy / quiet)); echo "$quiet and $busy tokens/s: $share %"
        [ $share -gt $best ] && best=$share
        [ $best -ge 40 ] && return 0
    done
    return 1
}
check "${claims[0]}" 'keeps --threads 2'
check "${claims[1]}" 'keeps --threads 1 --ranks 2'
done_testing

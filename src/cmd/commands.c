#include "cmd/bits.h"
#include "cmd/command.h"

const sh_command sh_commands[] = {
    {FOR_HELP, "help", "[COMMAND]", 1, "show help, or all about one command", NULL, sh_cmd_help},
    {FOR_COMPLETION, "completion", "bash|zsh|fish", 1,
     "print a script that completes commands and flags",
     "For bash: source <(shoal completion bash)", sh_cmd_completion},
    {FOR_ENGINE, "engine", "", 0, "load a model and answer on a Unix socket, without HTTP",
     "The part of `shoal serve` that computes. `shoal api` speaks HTTP in front of it.",
     sh_cmd_engine},
    {FOR_TOKENIZE, "tokenize", "[TEXT]", 1, "turn text into token ids, or ids into text",
     "Reads TEXT, or standard input, and prints the ids as a JSON list; with --decode it reads "
     "such a list and prints the text. With --jsonl every line of standard input is one JSON "
     "string (or list of ids) and every line of the answer belongs to it. --no-special leaves "
     "special tokens out, on either way.",
     sh_cmd_tokenize},
    {FOR_BENCH, "bench", "text", 1, "measure this machine, as CSV",
     "text: loading a tokenizer, encoding prose and hostile texts, decoding. It takes one of "
     "150000 tokens that it makes, and that of --model or --tokenizer, else the demo model's.",
     sh_cmd_bench},
};

const size_t sh_command_count = SH_COUNT_OF(sh_commands);

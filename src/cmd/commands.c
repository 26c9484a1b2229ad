#include "cmd/command.h"
#include "cmd/support/command_mask.h"

const sh_command sh_commands[] = {
    {FOR_HELP, "help", "[COMMAND]", 1, "show help, or all about one command", NULL, sh_cmd_help},
    {FOR_COMPLETION, "completion", "bash|zsh|fish", 1,
     "print a script that completes commands and flags",
     "For bash: source <(shoal completion bash)", sh_cmd_completion},
    {FOR_SERVE, "serve", "", 0, "serve a model: OpenAI API and dashboard on one port",
     "Without --model: the demo model on two local ranks. Starts the ranks and the API, starts "
     "again what crashes, and "
     "stops cleanly on Ctrl-C.",
     sh_cmd_serve},
    {FOR_ENGINE, "engine", "", 0, "load a model and answer on a Unix socket, without HTTP",
     "The part of `shoal serve` that computes. `shoal api` speaks HTTP in front of it.",
     sh_cmd_engine},
    {FOR_TOKENIZE, "tokenize", "[TEXT]", 1, "turn text into token ids, or ids into text",
     "Reads TEXT, or standard input, and prints the ids as a JSON list; with --decode it reads "
     "such a list and prints the text. With --jsonl every line of standard input is one JSON "
     "string (or list of ids) and every line of the answer belongs to it. --no-special leaves "
     "special tokens out, on either way.",
     sh_cmd_tokenize},
    {FOR_BENCH, "bench", "[text|serve]", 1,
     "measure a model on this machine, the text layer, or a server",
     "With --model: tokens a second of a prompt and of an answer, as llama-bench reports them, "
     "beside what the machine "
     "can read and compute at best. `bench text`: loading a tokenizer, encoding prose and hostile "
     "texts, decoding. `bench serve`: asks a running server many things at once (random prompts of "
     "--prompt ids, --generate tokens of answer, --rounds for each connection) and prints tokens a "
     "second, the time to the first token and the gaps between tokens, as CSV; any server with "
     "OpenAI's /v1/completions will do.",
     sh_cmd_bench},
    {FOR_CHAT, "chat", "", 0, "talk with a model at the terminal",
     "Answers stream; Ctrl-C stops an answer and not the program; /help inside lists commands. "
     "With "
     "--url it talks to a running server.",
     sh_cmd_chat},
    {FOR_GENERATE, "generate", "", 0, "answer one prompt and leave",
     "The answer streams to standard output, the reasoning before it to standard error; with "
     "--json it comes whole, with its ids, their log-probabilities and times. With --url a running "
     "server answers.",
     sh_cmd_generate},
    {FOR_TEMPLATE, "template", "[REQUEST.json]", 1, "print the prompt that a chat request becomes",
     "Reads a JSON object from the file, or from standard input: messages, and if wanted tools, "
     "documents, add_generation_prompt (true when absent) and other variables of the template.",
     sh_cmd_template},
    {FOR_INFO, "info", "", 0, "what a model folder holds, and which machines it fits", NULL,
     sh_cmd_info},
    {FOR_LOGITS, "logits", "", 0, "compute the logits of given token ids",
     "Writes the tensor `logits`, f32 [count, vocabulary], to --out; without it the best ids of "
     "each "
     "position are printed.",
     sh_cmd_logits},
    {FOR_SYNTH, "synth", "", 0, "write a model of random weights with a known shape",
     "Its answers mean nothing, but it is as large and as fast as the real one: measure a machine "
     "before you download. A run that was stopped goes on where it was.",
     sh_cmd_synth},
    {FOR_WORKER, "worker", "", 0, "be one of the ranks behind rank 0",
     "Started in any order, on any machine; it comes back by itself when the group was lost.",
     sh_cmd_worker},
    {FOR_PLAN, "plan", "", 0, "who would hold what on given machines, and how fast that should be",
     "Nothing is loaded or measured: ranks, memory, speeds and links are what the flags say.",
     sh_cmd_plan},
    {FOR_LINKTEST, "linktest", "", 0, "try and time the links between ranks",
     "Phases: barrier, correctness, latency, bandwidth, and with --stress many operations in "
     "random "
     "order. Times stand beside those of a raw socket between the same processes in the same run.",
     sh_cmd_linktest},
    {FOR_HOSTS, "hosts", "create|check|convert|detect [...]", 64,
     "make, check, convert and detect hostfiles",
     "hosts create A,B,C [-n K]: a hostfile of these names, each K times.\n"
     "hosts check FILE: what is wrong in it.\n"
     "hosts convert FILE --form object|list|plain|matrix: the same in another form.\n"
     "hosts detect [HOST ...]: asks the machines over ssh, times every pair over every network "
     "that they share, and writes the hostfile with the best addresses. Without names: the hosts "
     "of ~/.ssh/config.",
     sh_cmd_hosts},
    {FOR_DOCTOR, "doctor", "", 0, "check all hosts before they serve",
     "Asks every host of --hostfile at once over ssh: versions, clock, model, memory, ports, "
     "links, "
     "limits. Each line says ok, warning or failure, and what to do. Without --hostfile: this "
     "host.",
     sh_cmd_doctor},
    {FOR_CONFIG, "config", "check [COMMAND] [ITS FLAGS]", 64,
     "check all settings of a command and say where each came from",
     "Reads flags, environment, .env and settings file as COMMAND (serve) would, names everything "
     "that is wrong, and what has no effect.",
     sh_cmd_config},
    {FOR_MONITOR, "monitor", "", 0, "watch a running server in the terminal", NULL, sh_cmd_monitor},
    {FOR_FINGERPRINT, "fingerprint", "", 0, "print this host as JSON",
     "System, CPU, memory, networks, RDMA devices, limits; with --model its hash.",
     sh_cmd_fingerprint},
    {FOR_PROBE, "probe", "", 0, "one side of a timed connection, for detect and doctor",
     "With --listen IP,... it prints ports and a secret and answers from the background; without, "
     "it reads lines `ip:port secret more|last` and prints what it measured.",
     sh_cmd_probe},
    {FOR_TOKEN, "token", "", 0, "make a cluster token",
     "Ranks on several machines prove to each other that they know it: --token or SHOAL_TOKEN.",
     sh_cmd_token},
    {FOR_LAUNCH, "launch", "", 0, "serve a model on all hosts of a hostfile, by ssh",
     "Takes the flags of `serve`. Checks the hosts, gives them the program and the settings where "
     "they lack, starts every rank, starts again what crashes, and stops all on Ctrl-C. The API is "
     "on rank 0's host. With --detach it stays in the background. Without a hostfile the ranks are "
     "on this machine and on --workers.",
     sh_cmd_launch},
    {FOR_STOP, "stop", "", 0, "stop the cluster that was launched", NULL, sh_cmd_stop},
    {FOR_RESTART, "restart", "", 0, "stop the cluster and launch it again, in the background", NULL,
     sh_cmd_restart},
    {FOR_STATUS, "status", "", 0, "the ranks of the launched cluster, and how its API does",
     "The exit code is 0 when all is ready, 3 when a rank or the API is not, 1 when nothing runs.",
     sh_cmd_status},
    {FOR_LOGS, "logs", "", 0, "what the ranks of the launched cluster said", NULL, sh_cmd_logs},
    {FOR_CALL, "call", "PATH [JSON|-]", 2, "ask the API: GET a path, or POST a JSON body to it",
     "With - the body is read from standard input. Without --host and --port: the API of the "
     "launched cluster, wherever it is, or else of this "
     "machine.",
     sh_cmd_call},
    {FOR_BOOTSTRAP, "bootstrap", "", 0, "build the program on the other hosts of a hostfile",
     "For hosts of another kind than this one, or without the libraries: copies the source tree, "
     "installs what a build needs (tools/setup.sh) and builds.",
     sh_cmd_bootstrap},
    {FOR_AGENT, "agent", "[check]", 1, "run one rank on its host, for `launch`",
     "Ends when its standard input does. `agent check` tells version and model.", sh_cmd_agent},
    {FOR_API, "api", "", 0, "serve HTTP in front of an engine's Unix socket",
     "The part of `shoal serve` that speaks the OpenAI API. It may come and go while the engine "
     "keeps the model loaded, and waits for the engine when that is away.\n"
     "SIGTERM lets running answers finish; SIGHUP reads certificate and keys again.",
     sh_cmd_api},
};

const size_t sh_command_count = SH_COUNT_OF(sh_commands);

/* settings.h - all settings of the program, filled from the option table (options.c).
 *
 * Strings are borrowed from the sh_options that filled it, or are defaults of the table.
 *
 * Threads: read-only once gathered. */
#ifndef SH_CMD_SUPPORT_SETTINGS_H
#define SH_CMD_SUPPORT_SETTINGS_H

#include <stdbool.h>
#include <stdint.h>

typedef struct {
    /* every command */
    bool help;
    bool help_all;
    bool print_config;
    const char *config;
    const char *env_file;
    const char *log_level;
    const char *log_file;
    int64_t files_soft;
    int64_t files_hard;
    bool core_dumps;

    /* help */
    bool markdown;
    bool man;

    /* text */
    const char *model;       /* as given; a folder once main.c has resolved it */
    const char *model_given; /* as given; not an option */
    const char *models_dir;
    const char *keep_alive;
    const char *pin;
    const char *model_cache;
    int64_t shard_cache;
    const char *shares_from;
    const char *hf_hub_cache;
    const char *hf_home;
    const char *hf_endpoint;
    const char *hf_token;
    int64_t hub_timeout;
    bool offline;
    const char *tokenizer;
    const char *template;
    const char *date;
    bool decode;
    bool special;
    bool pieces;
    bool jsonl;

    /* computing */
    int64_t threads;
    const char *cpu;
    const char *activations;
    const char *kv_format;
    int64_t context;

    /* ranks */
    int64_t ranks;
    int64_t rank;
    const char *hostfile;
    const char *coordinator;
    const char *join;
    const char *node;
    const char *node_file;
    bool p2p;
    const char *p2p_token;
    const char *token_file;
    int64_t p2p_port;
    const char *p2p_address;
    int64_t min_ranks;
    int64_t wait;
    const char *ctrl_host;
    int64_t ctrl_port;
    const char *ibv_devices;
    bool jaccl_ring;
    int64_t coordinator_fd;
    const char *listen_fds;
    const char *grpc_fds;
    int64_t model_fd;
    int64_t control_fd;
    int64_t ready_fd;
    bool served;
    const char *listen;
    const char *token;
    bool insecure;
    bool plain_data;
    const char *backend;
    const char *mpi_library;
    const char *transport;
    int64_t sockets;
    const char *wire;
    int64_t join_timeout;
    int64_t peer_timeout_ms;
    int64_t op_timeout;
    int64_t spin_us;

    /* other hosts */
    const char *ssh_options;
    int64_t ssh_timeout;
    const char *state_dir;
    bool detach;
    const char *cwd;
    bool prepare;
    bool cold;
    bool warm;
    const char *job;
    bool progress;
    bool follow;
    int64_t lines;
    const char *source;

    /* linktest */
    bool quick;
    bool stress;
    const char *sizes;
    const char *counts;
    int64_t link_rounds;

    /* hosts */
    const char *form;
    int64_t repeat;
    const char *workers;
    const char *worker_ssh;
    const char *host_names;
    const char *over;
    const char *rank_env;
    const char *output_hostfile;
    bool dot;
    bool auto_setup;
    bool keep;
    bool undo;
    bool yes;
    bool verbose;

    /* probe, monitor */
    int64_t seconds;
    const char *url;
    double interval;
    bool once;

    /* plan */
    const char *memory;
    const char *speeds;
    double read_gb_s;
    double link_us;
    double link_gbit;

    /* serve */
    const char *part;
    const char *runtime_dir;

    /* engine */
    const char *parallel;
    const char *split;
    bool rebalance;
    const char *socket;
    int64_t slots;
    int64_t chunk;
    const char *pooling;
    int64_t kv_tokens;
    int64_t kv_memory_mb;
    int64_t kv_reserve_mb;
    int64_t queue_max;
    int64_t req_timeout;
    int64_t stall_ms;
    int64_t grace;
    int64_t replay_timeout;
    int64_t frozen_after;
    int64_t degrade_after;
    int64_t rejoin_after;
    int64_t drafts;
    const char *draft_model; /* as given */

    /* HTTP */
    const char *host;
    int64_t port;
    const char *model_name;
    const char *reasoning_parser;
    const char *tool_parser;
    int64_t hard_max_tokens;
    const char *addr;
    const char *grpc_token;
    const char *api_key;
    const char *api_key_file;
    const char *tls_cert;
    const char *tls_key;
    const char *cors;
    const char *allowed_hosts;
    bool sandbox;
    const char *access_log;
    const char *request_log;
    bool log_prompts;
    bool manage_models;
    int64_t connections;
    int64_t peer_connections;
    int64_t header_bytes;
    int64_t body_bytes;
    int64_t bodies_bytes;
    double idle_timeout;
    double receive_timeout;
    double send_timeout;

    /* generate, chat, logits */
    const char *prompt;
    const char *chat;
    const char *ids;
    const char *out;
    const char *system;
    const char *stop;
    const char *tools;
    int64_t max_tokens;
    double temperature;
    double repetition_penalty;
    double presence_penalty;
    double frequency_penalty;
    int64_t top_k;
    double top_p;
    double min_p;
    int64_t seed;
    bool json;

    /* bench, synth */
    int64_t bench_prompt;
    int64_t bench_generate;
    int64_t rounds;
    const char *concurrency;
    bool profile;
    const char *shape;
    int64_t bits;
    int64_t group;
} sh_settings;

#endif

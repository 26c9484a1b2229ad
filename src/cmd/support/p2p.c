/* From a token to the options of a group.
 *
 * What a supervisor decides (token, port, identity) reaches its ranks through the environment, by
 * the names of ordinary settings, so that a rank that is restarted finds the same. The token is
 * removed from what the API gets, as always (support/role.h).
 *
 * A rank searches before every attempt to join, and not only before the first: the addresses of
 * its server, and its own, may be others by then. */
#include "cmd/support/p2p.h"

#include "base/alloc.h"
#include "base/file.h"
#include "base/log.h"
#include "cluster/node_id.h"
#include "cluster/state_dir.h"
#include "discover/search.h"
#include "net/sock.h"

#include <openssl/crypto.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char SAVED[] = "p2p.token"; /* in the state folder */

enum {
    PORTS_MAX = 100, /* that are tried from SH_HOSTFILE_PORT on */
    TOKEN_FILE_MAX = 4096,
    SEARCH_MS = 10000,      /* one search; the caller repeats it */
    SEARCH_SHORT_MS = 1500, /* where the token says where to go otherwise */
};

/* ---- the token ---- */

static sh_status file_read(const char *path, sh_buf *out, sh_err *err)
{
    if (strcmp(path, "-") == 0)
        return sh_fd_read_all(STDIN_FILENO, "the token on standard input", TOKEN_FILE_MAX, out,
                              err);
    struct stat info;
    if (stat(path, &info) == 0 && S_ISREG(info.st_mode) && (info.st_mode & SH_OTHERS_TOUCH) != 0)
        SH_LOGW("%s: other users may read this token; `chmod 600` it", path);
    return sh_file_read(path, TOKEN_FILE_MAX, out, err);
}

static sh_status saved_read(const sh_settings *s, sh_buf *out, sh_err *err)
{
    char *folder = sh_state_dir_path(s->state_dir);
    char *file = sh_path_join(folder, SAVED);
    sh_status status = sh_file_exists(file)
                           ? sh_state_dir_read(folder, SAVED, true, out, err)
                           : sh_err_set(err, SH_ERR_NOT_FOUND,
                                        "no token: give it to `shoal join`, or in TOKEN, or in a "
                                        "file with --token-file; `shoal serve --p2p` prints it");
    free(file);
    free(folder);
    return status;
}

sh_status sh_p2p_token(const sh_settings *s, const char *given, char **out, sh_err *err)
{
    const char *named = given != NULL ? given : s->token != NULL ? s->token : s->p2p_token;
    sh_buf text = {0};
    sh_status status = SH_OK;
    if (named != NULL && strcmp(named, "-") != 0)
        sh_buf_add_text(&text, named);
    else if (named != NULL || s->token_file != NULL)
        status = file_read(named != NULL ? named : s->token_file, &text, err);
    else
        status = saved_read(s, &text, err);
    char *token = sh_str_dup(sh_str_trim(sh_buf_str(&text)));
    if (text.ptr != NULL) OPENSSL_cleanse(text.ptr, text.len);
    sh_buf_reset(&text);
    if (status == SH_OK) status = sh_cluster_token_check(token, err);
    if (status == SH_OK)
        *out = token;
    else
        free(token);
    return status;
}

static sh_status token_make(const sh_settings *s, char **out, sh_err *err)
{
    char made[SH_CLUSTER_TOKEN_LEN + 1];
    char *folder = sh_state_dir_path(s->state_dir);
    sh_cluster_token_make(made);
    sh_status status = sh_state_dir_make(folder, err);
    if (status == SH_OK) status = sh_state_dir_write(folder, SAVED, sh_str_of(made), err);
    if (status == SH_OK) *out = sh_strdup(made);
    free(folder);
    return status;
}

/* ---- supervisors ---- */

/* Claimed as long as this process lives. */
static sh_status identity_claim(const sh_settings *s, sh_err *err)
{
    char *file = NULL;
    int lock = -1;
    sh_status status = sh_node_id_claim(s->state_dir, &file, &lock, err);
    if (status == SH_OK) setenv("SHOAL_NODE_FILE", file, 1);
    free(file);
    return status;
}

static bool port_is_free(int port)
{
    static const char *const hosts[] = {"0.0.0.0", "[::]"};
    for (size_t i = 0; i < SH_COUNT_OF(hosts); i++) {
        char text[SH_ADDR_TEXT_MAX];
        sh_addr addr;
        sh_err ignored;
        int fd = -1;
        snprintf(text, sizeof(text), "%s:%d", hosts[i], port);
        bool known = sh_addr_parse(text, &addr, &ignored) == SH_OK;
        if (known && sh_sock_listen(&addr, &fd, &ignored) != SH_OK && i == 0) return false;
        sh_sock_close(fd);
    }
    return true;
}

static sh_status port_choose(int64_t given, int *out, sh_err *err)
{
    *out = (int)given;
    for (int port = SH_HOSTFILE_PORT; *out == 0 && port < SH_HOSTFILE_PORT + PORTS_MAX; port++)
        if (port_is_free(port)) *out = port;
    if (*out != 0) return SH_OK;
    return sh_err_set(err, SH_ERR_SYSTEM, "ports %d to %d are taken; choose one with --p2p-port",
                      SH_HOSTFILE_PORT, SH_HOSTFILE_PORT + PORTS_MAX - 1);
}

/* "host", "host:port", "1:2::3" or "[1:2::3]:port" as "host:port"; owned by the caller. */
static char *place_complete(sh_str part, int port)
{
    const char *colon = memchr(part.ptr, ':', part.len);
    bool bracket = part.len > 0 && part.ptr[0] == '[';
    bool bare_v6 = !bracket && colon != NULL &&
                   memchr(colon + 1, ':', part.len - (size_t)(colon + 1 - part.ptr)) != NULL;
    if (bare_v6) return sh_asprintf("[%.*s]:%d", (int)part.len, part.ptr, port);
    if (colon == NULL || sh_str_ends(part, SH_STR("]")))
        return sh_asprintf("%.*s:%d", (int)part.len, part.ptr, port);
    return sh_str_dup(part);
}

static sh_status place_add(sh_cluster_token *token, sh_str part, int port, sh_err *err)
{
    char host[SH_ADDR_HOST_MAX];
    uint16_t number = 0;
    char *place = place_complete(sh_str_trim(part), port);
    sh_status status = sh_addr_split(place, host, &number, err);
    if (status == SH_OK && (token->place_count == SH_CLUSTER_TOKEN_PLACES_MAX ||
                            strlen(place) >= sizeof(token->place[0]) || number == 0))
        status = sh_err_set(err, SH_ERR_INPUT,
                            "at most %d addresses, of less than %d characters and with a port "
                            "other than 0",
                            SH_CLUSTER_TOKEN_PLACES_MAX, SH_ADDR_TEXT_MAX);
    if (status == SH_OK)
        snprintf(token->place[token->place_count++], sizeof(token->place[0]), "%s", place);
    free(place);
    return status == SH_OK ? SH_OK : sh_err_prefix(err, "--p2p-address");
}

/* The one place where a token is shown: on standard output, never in a log. */
static sh_status invitation_print(const char *secret, const sh_settings *s, int port, sh_err *err)
{
    sh_cluster_token token = {.place_count = 0};
    sh_str rest = sh_str_of(s->p2p_address), part;
    sh_buf text = {0};
    sh_status status = sh_cluster_token_parse(secret, &token, err);
    if (s->p2p_address != NULL) token.place_count = 0;
    while (status == SH_OK && sh_str_cut(&rest, ',', &part))
        status = place_add(&token, part, port, err);
    if (status == SH_OK) status = sh_cluster_token_wrap(&token, &text, err);
    if (status == SH_OK) {
        printf("To add a machine, run there:\n\n    shoal join %s\n\n", text.ptr);
        fflush(stdout);
    }
    sh_buf_reset(&text);
    OPENSSL_cleanse(&token, sizeof(token));
    return status;
}

sh_status sh_p2p_check(const sh_command_args *args, sh_err *err)
{
    static const char *const placing[] = {"hostfile", "ranks",       "coordinator", "rank",
                                          "join",     "ibv-devices", "listen"};
    static const char *const ours[] = {"min-ranks", "wait", "p2p-address"};
    bool p2p = args->settings->p2p;
    if (p2p && args->settings->models_dir != NULL)
        return sh_err_set(err, SH_ERR_UNSUPPORTED,
                          "--p2p and --models-dir: machines join by a token for one model; for "
                          "several, give --coordinator HOST:PORT here, and --join HOST:PORT with "
                          "--models-dir to a `shoal worker` on each other machine");
    for (size_t i = 0; p2p && i < SH_COUNT_OF(placing); i++)
        if (sh_options_given(args->options, placing[i]))
            return sh_err_set(err, SH_ERR_INPUT,
                              "--p2p and --%s: ranks find each other by a token, or are placed",
                              placing[i]);
    for (size_t i = 0; !p2p && i < SH_COUNT_OF(ours); i++)
        if (sh_options_given(args->options, ours[i]))
            return sh_err_set(err, SH_ERR_INPUT, "--%s is for a group that others join: add --p2p",
                              ours[i]);
    return SH_OK;
}

sh_status sh_p2p_prepare_server(const sh_command_args *args, sh_err *err)
{
    const sh_settings *s = args->settings;
    char *token = NULL, number[16];
    int port = 0;
    sh_status status = sh_p2p_token(s, NULL, &token, err);
    if (status == SH_ERR_NOT_FOUND) status = token_make(s, &token, err);
    if (status == SH_OK) status = identity_claim(s, err);
    if (status == SH_OK) status = port_choose(s->p2p_port, &port, err);
    if (status == SH_OK) status = invitation_print(token, s, port, err);
    if (status == SH_OK) {
        snprintf(number, sizeof(number), "%d", port);
        setenv("SHOAL_P2P_PORT", number, 1);
        setenv("SHOAL_TOKEN", token, 1);
    }
    free(token);
    return status;
}

sh_status sh_p2p_prepare_worker(const sh_command_args *args, sh_err *err)
{
    char *token = NULL;
    sh_status status = sh_p2p_check(args, err);
    if (status == SH_OK) status = sh_p2p_token(args->settings, NULL, &token, err);
    if (status == SH_OK) status = identity_claim(args->settings, err);
    if (status == SH_OK) setenv("SHOAL_TOKEN", token, 1);
    free(token);
    return status;
}

/* ---- ranks ---- */

sh_status sh_p2p_use(sh_ranks *ranks, const sh_settings *s, sh_err *err)
{
    sh_mesh_opts *mesh = &ranks->opts.mesh;
    mesh->size = mesh->rank == 0 ? 1 : 0;
    snprintf(ranks->coordinator, sizeof(ranks->coordinator), "a server with this token");
    if (mesh->size == 0) SH_LOGI("searching for %s", ranks->coordinator);
    return port_choose(s->p2p_port, &mesh->everywhere, err);
}

static void addresses_add(sh_ranks *ranks, const char *text)
{
    size_t used = strlen(ranks->coordinator);
    if (used + strlen(text) + 2 > sizeof(ranks->coordinator)) return;
    snprintf(ranks->coordinator + used, sizeof(ranks->coordinator) - used, "%s%s",
             used > 0 ? "," : "", text);
}

/* Several servers with one token are a mistake; all workers choose the same. */
static void found_use(sh_ranks *ranks, const sh_answer_packet *found, int count)
{
    sh_interfaces own = {.count = 0};
    sh_buf text = {0};
    sh_err err;
    if (count > 1)
        SH_LOGW("%d servers answer to this token, on %s and %s; joining the one on %s", count,
                found[0].host, found[1].host, found[0].host);
    if (sh_interfaces_read(&own, &err) != SH_OK) SH_LOGW("%s", err.text);
    sh_found_addresses(&found[0], &own, &text);
    if (text.len > 0) addresses_add(ranks, text.ptr);
    sh_buf_reset(&text);
}

sh_status sh_p2p_find(sh_ranks *ranks, sh_err *err)
{
    const char *text = ranks->opts.mesh.token;
    char before[sizeof(ranks->coordinator)];
    sh_cluster_token token;
    int count = 0;
    sh_status status = sh_cluster_token_parse(text, &token, err);
    if (status != SH_OK) return status;
    memcpy(before, ranks->coordinator, sizeof(before));
    sh_answer_packet *found = sh_alloc_array(SH_FOUND_MAX, sizeof(*found));
    sh_deadline end = sh_deadline_in_ms(token.place_count > 0 ? SEARCH_SHORT_MS : SEARCH_MS);
    status = sh_search(text, SH_SEEK_SERVER, end, found, &count, err);
    ranks->coordinator[0] = '\0';
    if (status == SH_OK) found_use(ranks, found, count);
    for (int i = 0; i < token.place_count; i++) addresses_add(ranks, token.place[i]);
    bool news = strcmp(before, ranks->coordinator) != 0; /* not at every attempt */
    if (news && status == SH_OK)
        SH_LOGI("found the server on %s at %s", found[0].host, ranks->coordinator);
    else if (news && token.place_count > 0)
        SH_LOGI("no server answers nearby; trying %s", ranks->coordinator);
    OPENSSL_cleanse(&token, sizeof(token));
    free(found);
    if (ranks->coordinator[0] != '\0') return SH_OK;
    return sh_err_set(err, SH_ERR_NOT_FOUND,
                      "no server answers to this token on the local network");
}

sh_status sh_p2p_answer(const sh_ranks *ranks, const sh_settings *s, sh_answerer **out, sh_err *err)
{
    const sh_mesh_opts *mesh = &ranks->opts.mesh;
    sh_answerer_opts opts = {
        .token = mesh->token, .model = s->model_name, .port = (uint16_t)mesh->everywhere};
    *out = NULL;
    if (!s->p2p) return SH_OK;
    sh_status status = sh_answerer_start(&opts, out, err);
    if (status == SH_OK) sh_answerer_set(*out, mesh->node, mesh->rank, 0);
    return status;
}

sh_status sh_p2p_rename(sh_ranks *ranks, const sh_settings *s, sh_err *err)
{
    sh_mesh_opts *mesh = &ranks->opts.mesh;
    char text[SH_NODE_ID_TEXT_LEN + 1];
    sh_status status = SH_OK;
    if (s->node_file != NULL)
        status = sh_node_id_renew(s->node_file, mesh->node, err);
    else
        sh_random(mesh->node, sizeof(mesh->node));
    sh_node_id_format(mesh->node, text);
    mesh->rank = SH_RANK_ANY;
    mesh->last_epoch = mesh->last_left = 0;
    SH_LOGW(
        "another rank has the node id of this machine, as if its disk had been cloned: this one "
        "is now %s",
        text);
    return status;
}

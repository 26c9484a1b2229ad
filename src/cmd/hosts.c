/* shoal hosts: creates, checks and converts hostfiles; hosts_detect.c detects them, hosts_find.c
 * finds ranks that joined by a token, and hosts_change.c adds hosts to a running cluster and
 * removes them. A table of verbs dispatches by the first argument, with the number of arguments
 * that each takes. */
#include "cmd/hosts.h"

#include "base/file.h"
#include "base/terminal.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

static volatile sig_atomic_t interrupted;

static void on_signal(int number)
{
    interrupted = number;
}

/* Without SA_RESTART, so that a blocking call returns early and its caller checks the flag. */
const volatile sig_atomic_t *sh_hosts_interrupt(void)
{
    struct sigaction action = {.sa_handler = on_signal};
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    return &interrupted;
}

static sh_hostfile_form form_of(const sh_settings *s)
{
    return strcmp(s->form, "list") == 0     ? SH_HOSTFILE_LIST
           : strcmp(s->form, "plain") == 0  ? SH_HOSTFILE_PLAIN
           : strcmp(s->form, "matrix") == 0 ? SH_HOSTFILE_MATRIX
                                            : SH_HOSTFILE_OBJECT;
}

const char *sh_hosts_out(const sh_settings *s)
{
    return s->out != NULL ? s->out : s->output_hostfile;
}

sh_status sh_hosts_write(const sh_hostfile *file, const sh_settings *s, sh_err *err)
{
    sh_buf text = {0};
    const char *out = sh_hosts_out(s);
    sh_status status = sh_hostfile_write(file, form_of(s), &text, err);
    if (status == SH_OK && out != NULL)
        status = sh_file_write(out, text.ptr, text.len, err);
    else if (status == SH_OK)
        fwrite(text.ptr, 1, text.len, stdout);
    sh_buf_reset(&text);
    return status;
}

int sh_hosts_report(const sh_findings *report, bool json)
{
    sh_buf text = {0};
    if (json) {
        cJSON *list = sh_findings_json(report);
        char *said = cJSON_Print(list);
        sh_buf_addf(&text, "%s\n", said);
        cJSON_free(said);
        cJSON_Delete(list);
    } else {
        sh_findings_text(report, sh_terminal_has_color(STDOUT_FILENO), &text);
    }
    fwrite(text.ptr, 1, text.len, stdout);
    sh_buf_reset(&text);
    return sh_findings_worst(report) == SH_FINDING_FAIL ? SH_EXIT_FAILED : SH_EXIT_OK;
}

static int create(const sh_command_args *args)
{
    const sh_settings *s = args->settings;
    sh_hostfile *file = NULL;
    sh_err err;
    if (args->argc < 2 && s->workers == NULL) {
        fprintf(stderr, "shoal: usage: shoal hosts create A,B,C, or --workers and --worker-ssh\n");
        return SH_EXIT_USAGE;
    }
    sh_status status = args->argc > 1
                           ? sh_hostfile_of_names(args->argv[1], (int)s->repeat, &file, &err)
                           : sh_hostfile_of_workers(s->workers, s->worker_ssh, &file, &err);
    if (status == SH_OK) status = sh_hosts_write(file, args->settings, &err);
    sh_hostfile_free(file);
    return status == SH_OK ? SH_EXIT_OK : sh_command_fail(&err);
}

/* A file that cannot be parsed is a finding like any other, so that --json covers it. */
static int check(const sh_command_args *args)
{
    sh_findings report = {0};
    sh_hostfile *file = NULL;
    sh_err err;
    if (sh_hostfile_load(args->argv[1], &file, &err) == SH_OK)
        sh_hostfile_check(file, &report);
    else
        sh_findings_add(&report, SH_FINDING_FAIL, "read", "", NULL, "%s", err.text);
    int code = sh_hosts_report(&report, args->settings->json);
    sh_hostfile_free(file);
    sh_findings_reset(&report);
    return code;
}

/* Converting to a form without ports loses them, and the ranks will then listen elsewhere: that is
 * worth a note, but not an error. */
static int convert(const sh_command_args *args)
{
    sh_hostfile *file = NULL;
    sh_err err;
    sh_status status = sh_hostfile_load(args->argv[1], &file, &err);
    if (status == SH_OK && (status = sh_hosts_write(file, args->settings, &err)) != SH_OK)
        sh_err_prefix(&err, "%s", args->argv[1]);
    sh_hostfile_form form = form_of(args->settings);
    if (status == SH_OK && file->has_ports &&
        (form == SH_HOSTFILE_OBJECT || form == SH_HOSTFILE_LIST))
        fprintf(stderr, "shoal: this form has no ports; they count up from %d\n", SH_HOSTFILE_PORT);
    sh_hostfile_free(file);
    return status == SH_OK ? SH_EXIT_OK : sh_command_fail(&err);
}

static const struct {
    const char *verb;
    int args_min, args_max;
    const char *arguments;
    int (*run)(const sh_command_args *args);
} verbs[] = {
    {"create", 0, 1, "A,B,C", create},
    {"check", 1, 1, "FILE", check},
    {"convert", 1, 1, "FILE --form object|list|plain|matrix", convert},
    {"detect", 0, 63, "[HOST ...]", sh_hosts_detect},
    {"find", 0, 1, "[TOKEN|-]", sh_hosts_find},
    {"compare", 0, 63, "[HOST ...]", sh_hosts_compare},
    {"clean", 0, 63, "[HOST ...]", sh_hosts_clean},
    {"add", 1, 63, "HOST [HOST ...]", sh_hosts_add},
    {"remove", 1, 63, "HOST|RANK [...]", sh_hosts_remove},
};

static int usage(const char *given)
{
    sh_suggestion meant = {.typed = sh_str_of(given)};
    sh_buf text = {0};
    for (size_t i = 0; i < SH_COUNT_OF(verbs); i++) {
        sh_suggestion_try(&meant, verbs[i].verb);
        sh_buf_addf(&text, "%s%s", i == 0 ? "" : ", ", verbs[i].verb);
    }
    if (given != NULL) sh_buf_addf(&text, ", not '%s'", given);
    if (given != NULL && meant.name != NULL) sh_buf_addf(&text, "; did you mean %s?", meant.name);
    fprintf(stderr, "shoal: hosts takes one of %s\n", text.ptr);
    sh_buf_reset(&text);
    return SH_EXIT_USAGE;
}

static int hosts_run(const sh_command_args *args)
{
    for (size_t i = 0; args->argc > 0 && i < SH_COUNT_OF(verbs); i++) {
        if (strcmp(args->argv[0], verbs[i].verb) != 0) continue;
        int count = args->argc - 1;
        if (count >= verbs[i].args_min && count <= verbs[i].args_max) return verbs[i].run(args);
        fprintf(stderr, "shoal: usage: shoal hosts %s %s\n", verbs[i].verb, verbs[i].arguments);
        return SH_EXIT_USAGE;
    }
    return usage(args->argc > 0 ? args->argv[0] : NULL);
}

const sh_command sh_command_hosts = {
    SH_COMMAND_NAMED(hosts),
    .arguments = "create|check|convert|detect|compare|clean|find|add|remove [...]",
    .args_max = 64,
    .summary = "create, check and detect hostfiles; compare hosts; change those of a cluster",
    .details =
        "hosts create A,B,C [-n K]: a hostfile with these names, each K times.\n"
        "hosts check FILE: report what is wrong in it.\n"
        "hosts convert FILE --form object|list|plain|matrix: rewrite it in another form.\n"
        "hosts detect [HOST ...]: query the machines over ssh, time every pair over every "
        "network that they share, find out which RDMA devices are connected, and write the "
        "hostfile. Without names: --hosts, else the hosts of --hostfile, else WORKER_SSH, else "
        "those in ~/.ssh/config, else those found on cables. --auto-setup first gives direct "
        "cables addresses; --undo takes that back.\n"
        "hosts find [TOKEN|-]: list the ranks that answer to a token (`serve --p2p`); --out writes "
        "a hostfile of them.\n"
        "hosts compare [HOST ...]: show hosts side by side (program, system, CPU, memory, "
        "RDMA, model) and mark what differs. Without names: the hosts of --hostfile.\n"
        "hosts clean [HOST ...]: remove the programs, sources and settings that `launch` and "
        "`bootstrap` have put there; token and logs stay.\n"
        "hosts add HOST ...: prepare these hosts as `launch` does, and take them into the "
        "launched cluster while it serves.\n"
        "hosts remove HOST|RANK ...: let these ranks leave it, if the memory of the others "
        "suffices.",
    .run = hosts_run,
};

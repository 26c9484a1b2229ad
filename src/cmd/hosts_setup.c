/* shoal hosts detect --auto-setup and --undo: nothing is changed on any host before the user has
 * seen the commands and agreed. */
#include "cmd/hosts_detect.h"

#include "base/alloc.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { ADDRESSES_MAX = 512 };

/* Shows what is about to be done, on stderr, and asks unless --yes. */
static sh_status confirm(const char *title, const sh_buf *commands, const sh_settings *s,
                         sh_err *err)
{
    char answer[16] = "";
    fprintf(stderr, "%s\n%s", title, commands->ptr);
    if (s->yes) return SH_OK;
    if (!isatty(STDIN_FILENO))
        return sh_err_set(err, SH_ERR_INPUT,
                          "nothing was changed: pass --yes to run these commands without asking");
    fprintf(stderr, "Run these commands? [y/N] ");
    if (fgets(answer, sizeof(answer), stdin) == NULL || (answer[0] != 'y' && answer[0] != 'Y'))
        return sh_err_set(err, SH_ERR_CANCELLED, "nothing was changed");
    return SH_OK;
}

/* The commands are those of Linux. For a Mac, the report shows what to run there by hand. */
static int plan_for_linux(sh_detection *d, sh_cable_address *plan, int count)
{
    int kept = 0;
    for (int i = 0; i < count; i++) {
        const sh_survey_host *h = &d->host[plan[i].host];
        if (strcmp(h->fp->os, "Darwin") != 0)
            plan[kept++] = plan[i];
        else
            sh_findings_add(&d->report, SH_FINDING_WARN, "setup", h->shown,
                            "`sudo ifconfig INTERFACE inet ADDRESS netmask 255.255.255.252` there",
                            "is not Linux: give %s the address %s by hand", plan[i].interface,
                            plan[i].address);
    }
    return kept;
}

/* --keep also concerns what an earlier setup did without it. */
static int plan_to_keep(sh_detection *d, const sh_cable_setup *setup, sh_cable_address *plan,
                        int count)
{
    sh_cable_record *records = sh_alloc_array(ADDRESSES_MAX, sizeof(*records));
    int found = sh_cable_setup_records(setup, records, ADDRESSES_MAX, &d->report);
    for (int i = 0; i < found && count < ADDRESSES_MAX; i++)
        if (!records[i].kept) plan[count++] = records[i].at;
    free(records);
    return count;
}

static sh_status plan_make(sh_detection *d, const sh_cable_setup *setup, bool keep,
                           sh_cable_address *plan, int *count, sh_err *err)
{
    *count = sh_cables_plan(&d->cables, d->net, d->count, plan, ADDRESSES_MAX);
    if (*count < 0)
        return sh_err_set(err, SH_ERR_LIMIT,
                          "--auto-setup: the hosts use all of 10.254.0.0/16, which it takes "
                          "networks from; give the cables addresses by hand");
    *count = plan_for_linux(d, plan, *count);
    if (keep) *count = plan_to_keep(d, setup, plan, *count);
    return SH_OK;
}

sh_status sh_detection_setup(sh_detection *d, const sh_survey_opts *opts, const sh_settings *s,
                             bool *changed, sh_err *err)
{
    sh_cable_setup setup = {.survey = opts, .hosts = d->host, .count = d->count};
    sh_cable_address *plan = sh_alloc_array(ADDRESSES_MAX, sizeof(*plan));
    sh_buf commands = {0};
    int count = 0;
    *changed = false;
    sh_status status = plan_make(d, &setup, s->keep, plan, &count, err);
    if (status == SH_OK && count == 0)
        sh_findings_add(&d->report, SH_FINDING_OK, "setup", "", NULL,
                        "nothing to do: no direct cable is without addresses");
    if (status == SH_OK && count > 0) {
        sh_cable_setup_show(&setup, plan, count, s->keep, &commands);
        status = confirm(s->keep ? "To give direct cables addresses, and to keep them:"
                                 : "Direct cables without addresses; to give them some:",
                         &commands, s, err);
        if (status == SH_OK) sh_cable_setup_apply(&setup, plan, count, s->keep, &d->report);
        *changed = status == SH_OK;
    }
    sh_buf_reset(&commands);
    free(plan);
    return status;
}

int sh_detection_undo(sh_detection *d, const sh_survey_opts *opts, const sh_settings *s)
{
    sh_cable_setup setup = {.survey = opts, .hosts = d->host, .count = d->count};
    sh_cable_record *records = sh_alloc_array(ADDRESSES_MAX, sizeof(*records));
    sh_buf commands = {0};
    sh_err err;
    sh_status status = SH_OK;
    int count = sh_cable_setup_records(&setup, records, ADDRESSES_MAX, &d->report);
    sh_cable_setup_show_undo(&setup, records, count, &commands);
    if (count == 0)
        sh_findings_add(&d->report, SH_FINDING_OK, "setup", "", NULL,
                        "nothing to undo: no host has a record of a setup");
    else
        status = confirm("To take back the setup:", &commands, s, &err);
    if (count > 0 && status == SH_OK) sh_cable_setup_undo(&setup, &d->report);
    sh_buf_reset(&commands);
    free(records);
    return status == SH_OK ? sh_hosts_report(&d->report, s->json) : sh_command_fail(&err);
}

/* Addresses of direct cables: shell scripts for /bin/sh, one for each host.
 *
 * An address that is to survive a reboot gets a unit of systemd that is bound to its interface. It
 * runs whenever the interface appears, which for Thunderbolt is whenever the cable is plugged in,
 * and works next to any other network configuration. The link that enables it is made by hand:
 * `systemctl enable` would need a running systemd.
 *
 * The record is named after the host, because home folders may be shared. */
#include "cluster/cable_setup.h"

#include "base/alloc.h"
#include "cluster/state_dir.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SETUP_EXTRA_MS = 20000 };

#define UNIT_DIR "/etc/systemd/system"

/* Arguments of each: interface, address, unit of the interface. The record comes first: what fails
 * halfway can be undone. sudo must not wait for a password, since there is no terminal. */
static const char FUNCTIONS[] =
    "PATH=$PATH:/usr/sbin:/sbin; r=$d/cables.$(uname -n); u=" UNIT_DIR "\n"
    "if [ \"$(id -u)\" = 0 ]; then s=; else s='sudo -n'; fi\n"
    "has() { ip -o addr show dev \"$1\" 2>/dev/null | grep -qF \" $2 \"; }\n"
    "add() {\n"
    "grep -sqxF \"$1 $2 $3\" \"$r\" || printf '%s %s %s\\n' \"$1\" \"$2\" \"$3\" >>\"$r\" || "
    "return 1\n"
    "$s ip addr replace \"$2\" dev \"$1\"\n"
    "}\n"
    "keep() {\n"
    "n=shoal-cable-$1.service\n"
    "printf '%s\\n' '[Unit]' \"Description=Address of the direct cable on $1\" \"BindsTo=$3\" "
    "\"After=$3\" '[Service]' Type=oneshot RemainAfterExit=yes "
    "\"ExecStart=$(command -v ip) addr replace $2 dev $1\" '[Install]' \"WantedBy=$3\" |\n"
    "$s tee \"$u/$n\" >/dev/null && $s chmod 644 \"$u/$n\" && $s mkdir -p \"$u/$3.wants\" &&\n"
    "$s chmod 755 \"$u/$3.wants\" && $s ln -sf \"../$n\" \"$u/$3.wants/$n\" && reload\n"
    "}\n"
    "reload() { [ ! -d /run/systemd/system ] || $s systemctl daemon-reload; }\n"
    "forget() {\n"
    "n=shoal-cable-$1.service\n"
    "if has \"$1\" \"$2\"; then $s ip addr del \"$2\" dev \"$1\" || return 1; fi\n"
    "[ -e \"$u/$n\" ] || return 0\n"
    "$s rm -f \"$u/$n\" \"$u/$3.wants/$n\" && reload || return 1\n"
    "$s rmdir \"$u/$3.wants\" 2>/dev/null || :\n"
    "}\n";

/* The name of an interface as Linux allows it, without what systemd or a shell could misread. */
static bool is_plain_interface(const char *name)
{
    for (const char *p = name; *p != '\0'; p++)
        if (!isalnum((unsigned char)*p) && strchr("._-:@", *p) == NULL) return false;
    return name[0] != '\0' && name[0] != '.' && name[0] != '-';
}

/* The unit that systemd makes for an interface: '-' stands for '/' in such names, so others are
 * escaped. */
static void device_unit(const char *interface, sh_buf *out)
{
    sh_buf_add_text(out, "sys-subsystem-net-devices-");
    for (const char *p = interface; *p != '\0'; p++)
        if (isalnum((unsigned char)*p) || strchr("._:", *p) != NULL)
            sh_buf_add_char(out, *p);
        else
            sh_buf_addf(out, "\\x%02x", (unsigned char)*p);
    sh_buf_add_text(out, ".device");
}

static void word(sh_buf *out, const char *text)
{
    sh_buf_add_char(out, ' ');
    sh_shell_quote(out, sh_str_of(text));
}

static void step(sh_buf *out, const char *function, const sh_cable_address *a)
{
    sh_buf unit = {0};
    device_unit(a->interface, &unit);
    sh_buf_add_text(out, function);
    word(out, a->interface);
    word(out, a->address);
    word(out, unit.ptr);
    sh_buf_add_text(out, " || exit 1\n");
    sh_buf_reset(&unit);
}

static void script_begin(const sh_cable_setup *setup, sh_buf *out)
{
    sh_buf_add_text(out, "umask 077; d=");
    sh_state_dir_shell_word(setup->survey->state_dir, out);
    sh_buf_add_char(out, '\n');
    sh_state_dir_shell_check(out);
    sh_buf_add_text(out, FUNCTIONS);
}

static bool is_for(const sh_cable_address *plan, int count, int host)
{
    for (int i = 0; i < count; i++)
        if (plan[i].host == host) return true;
    return false;
}

void sh_cable_setup_show(const sh_cable_setup *setup, const sh_cable_address *plan, int plan_count,
                         bool keep, sh_buf *out)
{
    for (int h = 0; h < setup->count; h++) {
        if (!is_for(plan, plan_count, h)) continue;
        sh_buf_addf(out, "%s:\n", setup->hosts[h].shown);
        for (int i = 0; i < plan_count; i++) {
            if (plan[i].host != h) continue;
            sh_buf_addf(out, "    ip addr replace %s dev %s\n", plan[i].address, plan[i].interface);
            if (keep)
                sh_buf_addf(out,
                            "    the same at every start: " UNIT_DIR "/shoal-cable-%s.service\n",
                            plan[i].interface);
        }
    }
}

/* Empty for a host with nothing to do. An interface name that cannot be used is reported. */
static char *apply_script(const sh_cable_setup *setup, const sh_cable_address *plan, int plan_count,
                          int host, bool keep, sh_findings *report)
{
    sh_buf out = {0};
    if (!is_for(plan, plan_count, host)) return NULL;
    script_begin(setup, &out);
    sh_buf_add_text(&out, "mkdir -p \"$d\" || exit 1\n");
    for (int i = 0; i < plan_count; i++) {
        if (plan[i].host != host) continue;
        if (!is_plain_interface(plan[i].interface)) {
            sh_findings_add(report, SH_FINDING_FAIL, "setup", setup->hosts[host].shown,
                            "rename the interface", "'%s' is not a plain interface name",
                            plan[i].interface);
            continue;
        }
        step(&out, "add", &plan[i]);
        if (keep) step(&out, "keep", &plan[i]);
    }
    return sh_buf_take(&out);
}

/* One job for each host that has a script; which[k] is the host of job k. */
static int jobs_run(const sh_cable_setup *setup, char *const *scripts, sh_ssh_job *jobs, int *which)
{
    sh_ssh_opts ssh = setup->survey->ssh;
    int used = 0;
    ssh.limit_ms = (ssh.connect_s > 0 ? ssh.connect_s : 5) * 1000 + SETUP_EXTRA_MS;
    for (int h = 0; h < setup->count; h++) {
        if (scripts[h] == NULL) continue;
        jobs[used] = (sh_ssh_job){.host = setup->hosts[h].name, .command = scripts[h]};
        which[used++] = h;
    }
    sh_ssh_run(&ssh, jobs, used);
    return used;
}

static void report_job(const sh_ssh_job *job, const char *host, const char *done,
                       sh_findings *report)
{
    sh_str said = sh_str_trim(sh_buf_str(&job->errors));
    if (job->status == SH_OK)
        sh_findings_add(report, SH_FINDING_OK, "setup", host, NULL, "%s", done);
    else
        sh_findings_add(report, SH_FINDING_FAIL, "setup", host,
                        "the commands need root, or sudo without a password; `--undo` takes back "
                        "what was done",
                        "%.*s", said.len > 0 ? (int)said.len : (int)strlen(job->err.text),
                        said.len > 0 ? said.ptr : job->err.text);
}

/* Runs the scripts (owned, freed here) and reports each host. */
static void scripts_run(const sh_cable_setup *setup, char **scripts, const char *done,
                        sh_findings *report)
{
    sh_ssh_job *jobs = sh_alloc_array((size_t)setup->count, sizeof(*jobs));
    int *which = sh_alloc_array((size_t)setup->count, sizeof(*which));
    int used = jobs_run(setup, scripts, jobs, which);
    for (int k = 0; k < used; k++) {
        report_job(&jobs[k], setup->hosts[which[k]].shown, done, report);
        sh_ssh_job_reset(&jobs[k]);
    }
    for (int h = 0; h < setup->count; h++) free(scripts[h]);
    free(jobs);
    free(which);
}

void sh_cable_setup_apply(const sh_cable_setup *setup, const sh_cable_address *plan, int plan_count,
                          bool keep, sh_findings *report)
{
    char **scripts = sh_alloc_array((size_t)setup->count, sizeof(*scripts));
    for (int h = 0; h < setup->count; h++)
        scripts[h] = apply_script(setup, plan, plan_count, h, keep, report);
    scripts_run(setup, scripts, "its cables have addresses", report);
    free(scripts);
}

static char *record_script(const sh_cable_setup *setup, const char *rest)
{
    sh_buf out = {0};
    script_begin(setup, &out);
    sh_buf_add_text(&out, rest);
    return sh_buf_take(&out);
}

/* An address as the plan writes it; a record is a file of a host, so anything may be in it. */
static bool is_address(sh_str text)
{
    for (size_t i = 0; i < text.len; i++)
        if (!isdigit((unsigned char)text.ptr[i]) && strchr("./", text.ptr[i]) == NULL) return false;
    return text.len > 0 && text.len < SH_FP_NAME_MAX;
}

/* Reads a line "interface address kept"; false if it cannot be one. */
static bool record_read(sh_str line, int host, sh_cable_record *out)
{
    sh_str interface, address;
    if (!sh_str_cut(&line, ' ', &interface) || !sh_str_cut(&line, ' ', &address)) return false;
    *out = (sh_cable_record){.at = {.host = host}, .kept = sh_str_eq(line, SH_STR("yes"))};
    snprintf(out->at.interface, sizeof(out->at.interface), "%.*s", (int)interface.len,
             interface.ptr);
    snprintf(out->at.address, sizeof(out->at.address), "%.*s", (int)address.len, address.ptr);
    return interface.len < SH_FP_NAME_MAX && is_plain_interface(out->at.interface) &&
           is_address(address);
}

static int records_add(sh_str text, int host, const char *shown, sh_cable_record *out, int cap,
                       sh_findings *report)
{
    sh_str line;
    int count = 0;
    while (count < cap && sh_str_cut(&text, '\n', &line)) {
        if (line.len == 0) continue;
        if (record_read(line, host, &out[count]))
            count++;
        else
            sh_findings_add(report, SH_FINDING_WARN, "setup", shown,
                            "look at the file cables.NAME in the state folder",
                            "its record has a line that no setup has written: '%.*s'",
                            line.len < 80 ? (int)line.len : 80, line.ptr);
    }
    return count;
}

int sh_cable_setup_records(const sh_cable_setup *setup, sh_cable_record *out, int cap,
                           sh_findings *report)
{
    char **scripts = sh_alloc_array((size_t)setup->count, sizeof(*scripts));
    sh_ssh_job *jobs = sh_alloc_array((size_t)setup->count, sizeof(*jobs));
    int *which = sh_alloc_array((size_t)setup->count, sizeof(*which));
    int count = 0;
    for (int h = 0; h < setup->count; h++)
        scripts[h] = record_script(setup, "[ -e \"$r\" ] || exit 0\n"
                                          "while read -r i a w; do k=no; "
                                          "[ ! -e \"$u/shoal-cable-$i.service\" ] || k=yes; "
                                          "echo \"$i $a $k\"; done <\"$r\"\n");
    int used = jobs_run(setup, scripts, jobs, which);
    for (int k = 0; k < used; k++) {
        const char *shown = setup->hosts[which[k]].shown;
        if (jobs[k].status == SH_OK)
            count += records_add(sh_buf_str(&jobs[k].out), which[k], shown, out + count,
                                 cap - count, report);
        else
            sh_findings_add(report, SH_FINDING_FAIL, "ssh", shown,
                            "`ssh HOST true` must work without a prompt", "%s", jobs[k].err.text);
        sh_ssh_job_reset(&jobs[k]);
    }
    for (int h = 0; h < setup->count; h++) free(scripts[h]);
    free(scripts);
    free(jobs);
    free(which);
    return count;
}

void sh_cable_setup_show_undo(const sh_cable_setup *setup, const sh_cable_record *records,
                              int count, sh_buf *out)
{
    for (int i = 0; i < count; i++) {
        const sh_cable_address *at = &records[i].at;
        if (i == 0 || at->host != records[i - 1].at.host)
            sh_buf_addf(out, "%s:\n", setup->hosts[at->host].shown);
        sh_buf_addf(out, "    ip addr del %s dev %s\n", at->address, at->interface);
        if (records[i].kept)
            sh_buf_addf(out, "    rm " UNIT_DIR "/shoal-cable-%s.service\n", at->interface);
    }
}

void sh_cable_setup_undo(const sh_cable_setup *setup, sh_findings *report)
{
    char **scripts = sh_alloc_array((size_t)setup->count, sizeof(*scripts));
    for (int h = 0; h < setup->count; h++)
        scripts[h] = record_script(setup,
                                   "[ -e \"$r\" ] || exit 0\n"
                                   "while read -r i a w; do forget \"$i\" \"$a\" \"$w\" || exit 1; "
                                   "done <\"$r\"\nrm -f \"$r\"\n");
    scripts_run(setup, scripts, "nothing of an earlier setup is left", report);
    free(scripts);
}

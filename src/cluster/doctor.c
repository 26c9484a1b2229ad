/* Each check is independent and looks only at the view: it must cope with hosts that did not answer
 * (fp == NULL) and with hosts that have no program installed and so reported less (version ""). A
 * check also reports what is fine, so that a reader sees what was covered; the order of the checks
 * is the order of the output, from reachability to the details of the network.
 *
 * Failure means that a launch would not work, warning that it would work badly. Every warning and
 * failure carries advice; the unit test insists on it. */
#include "cluster/doctor.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    CLOCK_SLACK_US = 2000000, /* tolerated difference, on top of the time the query took */
    FILES_MIN = 4096,
    LOCKED_MIN = 64 << 20, /* bytes of locked memory below which RDMA gets a warning */
    RTT_SLOW_US = 1000,
};
static const double GBIT_SLOW = 0.9; /* just below Gigabit Ethernet */
static const double GIB = 1024.0 * 1024.0 * 1024.0;

static void check_ssh(const sh_doctor_view *v, sh_findings *report)
{
    for (int i = 0; i < v->count; i++) {
        const sh_survey_host *h = &v->host[i];
        if (h->fp != NULL)
            sh_findings_add(report, SH_FINDING_OK, "ssh", h->shown, NULL, "%s",
                            h->name == NULL ? "this host" : "reachable");
        else
            sh_findings_add(report, SH_FINDING_FAIL, "ssh", h->shown,
                            h->err.status == SH_ERR_AUTH
                                ? "install your key: ssh-copy-id HOST, then try `ssh HOST true`"
                                : "check its power, its name and its sshd: `ssh HOST true`",
                            "%s", h->err.text);
    }
}

static const sh_fingerprint *first_answer(const sh_doctor_view *v)
{
    for (int i = 0; i < v->count; i++)
        if (v->host[i].fp != NULL) return v->host[i].fp;
    return NULL;
}

/* A missing program is only a warning where `launch` can copy ours over; another architecture needs
 * a build on the host itself. A different version is a failure: ranks refuse to form a group. */
static void check_program(const sh_doctor_view *v, sh_findings *report)
{
    const sh_fingerprint *first = first_answer(v);
    for (int i = 0; i < v->count; i++) {
        const sh_fingerprint *fp = v->host[i].fp;
        if (fp == NULL) continue;
        bool same_arch = strcmp(fp->arch, first->arch) == 0;
        if (fp->version[0] == '\0')
            sh_findings_add(report, same_arch ? SH_FINDING_WARN : SH_FINDING_FAIL, "program",
                            v->host[i].shown,
                            same_arch ? "`shoal launch` copies it over"
                                      : "`shoal bootstrap --hostfile F` builds it there",
                            "shoal is not installed, or does not run (%s %s)", fp->os, fp->arch);
        else if (strcmp(fp->version, v->version) != 0)
            sh_findings_add(report, SH_FINDING_FAIL, "program", v->host[i].shown,
                            "all ranks must run the same version: `shoal launch` copies this one",
                            "version %s at %s, but this host has %s", fp->version, fp->program,
                            v->version);
        else
            sh_findings_add(report, SH_FINDING_OK, "program", v->host[i].shown, NULL,
                            "shoal %s, %s %s", fp->version, fp->os, fp->arch);
    }
}

static void check_cpu(const sh_doctor_view *v, sh_findings *report)
{
    for (int i = 0; i < v->count; i++) {
        const sh_fingerprint *fp = v->host[i].fp;
        if (fp == NULL || fp->cpu_level[0] == '\0') continue;
        bool slow = strcmp(fp->cpu_level, "generic") == 0;
        sh_findings_add(report, slow ? SH_FINDING_WARN : SH_FINDING_OK, "cpu", v->host[i].shown,
                        "give it a small share with --split, or leave it out",
                        "%lld CPUs, %s, %s%s", (long long)fp->cores, fp->cpu, fp->cpu_level,
                        slow ? ": no supported vector instructions" : "");
    }
}

/* The host read its clock at some moment between our request and its answer. Whatever lies outside
 * that interval on our clock is a real difference; inside it nothing can be told. */
static void check_clock(const sh_doctor_view *v, sh_findings *report)
{
    for (int i = 0; i < v->count; i++) {
        const sh_survey_host *h = &v->host[i];
        if (h->fp == NULL || h->fp->unix_us == 0) continue;
        double late = (double)(h->fp->unix_us - h->answered_us);
        double early = (double)(h->asked_us - h->fp->unix_us);
        double off = (late > early ? late : early) * 1e-6;
        if (off * 1e6 > CLOCK_SLACK_US)
            sh_findings_add(report, SH_FINDING_WARN, "clock", h->shown,
                            "turn on NTP (timedatectl set-ntp true)",
                            "is %.0f s %s this host's: log times will not match", off,
                            late > early ? "ahead of" : "behind");
        else
            sh_findings_add(report, SH_FINDING_OK, "clock", h->shown, NULL, "in sync");
    }
}

/* Limits are only known from the program itself. Locked memory matters to RDMA alone. */
static void check_limits(const sh_doctor_view *v, sh_findings *report)
{
    for (int i = 0; i < v->count; i++) {
        const sh_fingerprint *fp = v->host[i].fp;
        if (fp == NULL || fp->version[0] == '\0') continue;
        bool few = fp->files_soft >= 0 && fp->files_soft < FILES_MIN;
        sh_findings_add(report, few ? SH_FINDING_WARN : SH_FINDING_OK, "files", v->host[i].shown,
                        "ulimit -n 65536, or --files-soft 65536", "%lld may be open at once%s",
                        (long long)fp->files_soft, few ? ": too few for many clients" : "");
        bool locked = fp->locked >= 0 && fp->locked < LOCKED_MIN;
        if (fp->device_count > 0)
            sh_findings_add(report, locked ? SH_FINDING_WARN : SH_FINDING_OK, "locked",
                            v->host[i].shown, "ulimit -l unlimited (limits.conf: memlock)",
                            locked ? "%lld bytes of locked memory: too little for RDMA"
                                   : "%lld bytes of locked memory (-1: no limit)",
                            (long long)fp->locked);
    }
}

/* `need` counts the weights only, not the KV cache. */
static void check_memory(const sh_doctor_view *v, sh_findings *report)
{
    for (int i = 0; i < v->count; i++) {
        const sh_fingerprint *fp = v->host[i].fp;
        if (fp == NULL) continue;
        double need = v->need == NULL ? 0 : v->need[i], free = (double)fp->memory_available;
        if (need > free)
            sh_findings_add(report, SH_FINDING_FAIL, "memory", v->host[i].shown,
                            "stop other programs on it, add a host, or use a smaller model",
                            "%.2f GiB free, its share of the model is %.2f GiB", free / GIB,
                            need / GIB);
        else if (need > 0)
            sh_findings_add(report, SH_FINDING_OK, "memory", v->host[i].shown, NULL,
                            "%.2f GiB free, its share of the model is %.2f GiB", free / GIB,
                            need / GIB);
        else
            sh_findings_add(report, SH_FINDING_OK, "memory", v->host[i].shown, NULL,
                            "%.2f of %.2f GiB free", free / GIB, (double)fp->memory_total / GIB);
    }
}

/* All hosts are compared with the first one that has the model; which of two different copies is
 * the right one cannot be known here. */
static void check_model(const sh_doctor_view *v, sh_findings *report)
{
    const char *hash = NULL, *owner = NULL;
    for (int i = 0; i < v->count; i++) {
        const sh_fingerprint *fp = v->host[i].fp;
        const char *name = v->host[i].shown;
        if (fp == NULL || !fp->model_asked) continue;
        if (fp->model_fault[0] != '\0') {
            bool first = i == 0; /* the others can get their share from it */
            sh_findings_add(report, first ? SH_FINDING_FAIL : SH_FINDING_WARN, "model", name,
                            "copy the folder to it: rsync -a DIR/ HOST:DIR/, or run `shoal pull "
                            "ORG/NAME` there",
                            "%s%s", fp->model_fault,
                            first ? "" : "; it will get its share from rank 0");
            continue;
        }
        bool same = hash == NULL || strcmp(hash, fp->model_hash) == 0;
        if (same)
            sh_findings_add(report, SH_FINDING_OK, "model", name, NULL, "%s, %.2f GiB, %.12s",
                            fp->model_dir, (double)fp->model_bytes / GIB, fp->model_hash);
        else
            sh_findings_add(report, SH_FINDING_FAIL, "model", name,
                            "copy the right one over the other",
                            "%s differs from the model on %s: %.12s, not %.12s", fp->model_dir,
                            owner, fp->model_hash, hash);
        if (hash == NULL) hash = fp->model_hash;
        if (owner == NULL) owner = name;
    }
}

/* A port in use is what one expects while our own server runs; it must not count as a failure. */
static void check_ports(const sh_doctor_view *v, sh_findings *report)
{
    for (int i = 0; i < v->count; i++) {
        const sh_fingerprint *fp = v->host[i].fp;
        for (int k = 0; fp != NULL && k < fp->port_count; k++) {
            const sh_fp_port *p = &fp->port[k];
            if (p->fault[0] == '\0')
                sh_findings_add(report, SH_FINDING_OK, "port", v->host[i].shown, NULL, "%s is free",
                                p->address);
            else if (v->server != NULL && strstr(p->fault, "in use") != NULL)
                sh_findings_add(report, SH_FINDING_OK, "port", v->host[i].shown, NULL,
                                "%s is in use while %s runs", p->address, v->server);
            else
                sh_findings_add(report, SH_FINDING_FAIL, "port", v->host[i].shown,
                                strstr(p->fault, "in use") != NULL
                                    ? "an older server? `shoal stop`; `ss -ltnp` shows the process"
                                    : "correct its `ips`: `shoal hosts detect` finds them",
                                "%s", p->fault);
        }
    }
}

static void check_links(const sh_doctor_view *v, sh_findings *report)
{
    for (int i = 0; i < v->link_count; i++) {
        const sh_net_link *l = &v->link[i];
        char pair[160], speed[48] = "bandwidth not measured";
        snprintf(pair, sizeof(pair), "%.64s - %.64s", v->host[l->from].shown, v->host[l->to].shown);
        if (l->gbit_s > 0) snprintf(speed, sizeof(speed), "%.2f Gbit/s", l->gbit_s);
        bool thin = l->gbit_s > 0 && l->gbit_s<GBIT_SLOW, late = l->rtt_us> RTT_SLOW_US;
        if (!l->reached)
            sh_findings_add(report, SH_FINDING_FAIL, "link", pair,
                            "check network and cable; firewalls must allow TCP between the hosts",
                            "%s does not answer: %s", l->address, l->fault);
        else if (thin || late)
            sh_findings_add(
                report, SH_FINDING_WARN, "link", pair,
                "use a cable instead of Wi-Fi; `shoal hosts detect` finds the best address; "
                "--parallel pipeline needs less from a link",
                "%s: %.0f us round trip, %s: it will slow the ranks down", l->address, l->rtt_us,
                speed);
        else
            sh_findings_add(report, SH_FINDING_OK, "link", pair, NULL, "%s: %.0f us round trip, %s",
                            l->address, l->rtt_us, speed);
    }
}

static bool all_reached(const sh_doctor_view *v)
{
    for (int i = 0; i < v->link_count; i++)
        if (!v->link[i].reached) return false;
    return v->link_count > 0;
}

/* That a firewall has rules says little; it becomes a suspect only if some link did not connect. */
static void check_firewall(const sh_doctor_view *v, sh_findings *report)
{
    for (int i = 0; i < v->count; i++) {
        const sh_fingerprint *fp = v->host[i].fp;
        if (fp == NULL || fp->firewall[0] == '\0' || v->count < 2) continue;
        bool passes = all_reached(v);
        sh_findings_add(report, passes ? SH_FINDING_OK : SH_FINDING_WARN, "firewall",
                        v->host[i].shown, "allow TCP from the other hosts, port 32323 and up",
                        passes ? "%s has rules, but connections pass" : "%s has rules",
                        fp->firewall);
    }
}

/* These checks only add findings when something is wrong, so "ok" is added here when they did not.
 */
static void check_networks(const sh_doctor_view *v, sh_findings *report)
{
    sh_net_host *hosts = calloc((size_t)v->count, sizeof(*hosts));
    SH_ASSERT(hosts != NULL || v->count == 0);
    int before = report->count;
    sh_survey_net(v->host, v->count, hosts);
    sh_net_check(hosts, v->count, report);
    if (report->count == before)
        sh_findings_add(report, SH_FINDING_OK, "subnet", "", NULL,
                        "no network conflicts with a gateway, no bridge has a loop");
    before = report->count;
    sh_net_check_mtu(hosts, v->count, report);
    if (report->count == before && v->count > 1)
        sh_findings_add(report, SH_FINDING_OK, "mtu", "", NULL, "the same in every shared network");
    free(hosts);
}

static const sh_fp_device *device_named(const sh_fingerprint *fp, const char *name)
{
    for (int i = 0; i < fp->device_count; i++)
        if (strcmp(fp->device[i].name, name) == 0) return &fp->device[i];
    return NULL;
}

/* The hostfile names devices by rank; check that each exists on that rank's machine and is up. */
static void check_named_devices(const sh_doctor_view *v, int rank, sh_findings *report)
{
    const sh_survey_host *h = &v->host[v->machine[rank]];
    const sh_host *entry = &v->file->host[rank];
    for (int j = 0; h->fp != NULL && j < entry->rdma_count; j++)
        for (int k = 0; k < entry->rdma[j].count; k++) {
            const char *name = entry->rdma[j].name[k];
            const sh_fp_device *d = device_named(h->fp, name);
            if (d == NULL)
                sh_findings_add(report, SH_FINDING_FAIL, "rdma", h->shown,
                                "correct the hostfile: `shoal hosts detect` writes the rdma fields",
                                "has no device '%s'", name);
            else if (strcmp(d->state, "ACTIVE") != 0)
                sh_findings_add(report, SH_FINDING_WARN, "rdma", h->shown,
                                "check the cable and the other end", "%s is %s", name, d->state);
        }
}

static void report_device(const char *host, const sh_fp_device *d, sh_findings *report)
{
    sh_findings_add(report, SH_FINDING_OK, "rdma", host, NULL, "%s: %s, %s%s%s%s%s", d->name,
                    d->state, d->layer, d->interface[0] == '\0' ? "" : " on ", d->interface,
                    d->rate[0] == '\0' ? "" : ", ", d->rate);
}

/* A host without the plugin gets this program's at the next launch. */
static void check_plugin(const sh_doctor_view *v, const sh_survey_host *h, bool wanted,
                         sh_findings *report)
{
    if (h->fp->rdma_plugin[0] != '\0')
        sh_findings_add(report, SH_FINDING_OK, "plugin", h->shown, NULL, "%s", h->fp->rdma_plugin);
    else if (v->plugin != NULL)
        sh_findings_add(report, SH_FINDING_OK, "plugin", h->shown, NULL,
                        "none yet: launch copies %s", v->plugin);
    else
        sh_findings_add(
            report, wanted ? SH_FINDING_FAIL : SH_FINDING_WARN, "plugin", h->shown,
            "install libibverbs-dev and build again; launch copies the plugin along",
            "there is no RDMA plugin beside the program: --backend jaccl will not work");
}

static bool wants_devices(const sh_hostfile *file)
{
    const sh_backend *backend = file == NULL ? NULL : sh_backend_find(file->backend);
    return backend != NULL && backend->devices != SH_DEVICES_NOWHERE;
}

static void check_rdma(const sh_doctor_view *v, sh_findings *report)
{
    bool wanted = wants_devices(v->file);
    for (int i = 0; i < v->count; i++) {
        const sh_fingerprint *fp = v->host[i].fp;
        if (fp == NULL || fp->version[0] == '\0') continue;
        if (fp->device_count == 0 && wanted)
            sh_findings_add(report, SH_FINDING_FAIL, "rdma", v->host[i].shown,
                            "docs/rdma.md says how to enable them; --backend ring uses TCP",
                            "no devices, but the hostfile asks for %s", v->file->backend);
        else if (fp->device_count == 0)
            sh_findings_add(report, SH_FINDING_OK, "rdma", v->host[i].shown, NULL,
                            "no devices: ranks use TCP");
        for (int k = 0; k < fp->device_count; k++)
            report_device(v->host[i].shown, &fp->device[k], report);
        if (wanted || fp->device_count > 0) check_plugin(v, &v->host[i], wanted, report);
    }
    for (int r = 0; v->file != NULL && r < v->file->count; r++) check_named_devices(v, r, report);
}

static void (*const checks[])(const sh_doctor_view *v, sh_findings *report) = {
    check_ssh,   check_program, check_cpu,      check_clock, check_limits,   check_memory,
    check_model, check_ports,   check_networks, check_links, check_firewall, check_rdma,
};

void sh_doctor_check(const sh_doctor_view *view, sh_findings *report)
{
    for (size_t i = 0; i < SH_COUNT_OF(checks); i++) checks[i](view, report);
}

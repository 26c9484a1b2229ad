/* A service manager's socket, and a supervisor that reports to it. */
#include "cluster/notify.h"

#include "base/log.h"
#include "base/str.h"
#include "cluster/children.h"

#include "scratch.h"

#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

enum { WAIT_MS = 20000 };

static sh_err err;

static int manager_open(const char *name)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    size_t len = strlen(name);
    memcpy(at.sun_path, name, len);
    if (name[0] == '@') at.sun_path[0] = '\0';
    int fd = socket(AF_UNIX, SOCK_DGRAM, 0);
    socklen_t size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + len + (name[0] == '/'));
    assert_int_equal(bind(fd, (struct sockaddr *)&at, size), 0);
    setenv("NOTIFY_SOCKET", name, 1);
    return fd;
}

static char *manager_path(void)
{
    static char path[64];
    snprintf(path, sizeof(path), "%s/notify", dir);
    unlink(path);
    return path;
}

/* The next message, or "" if there is none in that time. */
static const char *message(int fd, int wait_ms)
{
    static char text[512];
    struct pollfd wait = {.fd = fd, .events = POLLIN};
    text[0] = '\0';
    if (poll(&wait, 1, wait_ms) != 1) return text;
    ssize_t got = recv(fd, text, sizeof(text) - 1, 0);
    assert_true(got >= 0);
    text[got] = '\0';
    return text;
}

TEST(what_is_new_is_sent_once)
{
    UNUSED_STATE;
    int fd = manager_open(manager_path());
    sh_notify n;
    sh_notify_open(&n);
    sh_notify_send(&n, &(sh_notify_state){.text = "engine: starting"});
    assert_string_equal(message(fd, WAIT_MS), "STATUS=engine: starting\n");
    sh_notify_send(&n, &(sh_notify_state){.text = "engine: starting"});
    sh_notify_send(&n, &(sh_notify_state){.ready = true, .text = "ready"});
    assert_string_equal(message(fd, WAIT_MS), "READY=1\nSTATUS=ready\n");
    sh_notify_send(&n, &(sh_notify_state){.text = "engine: restarting"});
    assert_string_equal(message(fd, WAIT_MS), "STATUS=engine: restarting\n");
    sh_notify_send(&n, &(sh_notify_state){.ready = true, .stopping = true, .text = "draining"});
    assert_string_equal(message(fd, WAIT_MS), "STOPPING=1\nSTATUS=draining\n");
    assert_string_equal(message(fd, 0), "");
    sh_notify_close(&n);
    close(fd);
}

TEST(the_watchdog_is_fed_at_half_its_interval)
{
    UNUSED_STATE;
    int fd = manager_open(manager_path());
    char pid[24];
    sh_notify n;
    snprintf(pid, sizeof(pid), "%d", (int)getpid());
    setenv("WATCHDOG_USEC", "20000", 1);
    setenv("WATCHDOG_PID", pid, 1);
    sh_notify_open(&n);
    assert_int_equal(n.watchdog_ms, 10);
    assert_null(getenv("NOTIFY_SOCKET")); /* nor do children see them */
    assert_null(getenv("WATCHDOG_USEC"));
    assert_null(getenv("WATCHDOG_PID"));
    for (int i = 0; i < 3; i++) {
        sh_notify_send(&n, &(sh_notify_state){.text = ""});
        assert_string_equal(message(fd, WAIT_MS), "WATCHDOG=1\n");
        sh_sleep_ms(11);
    }
    sh_notify_close(&n);
    close(fd);
}

TEST(a_watchdog_of_another_process_or_without_a_number_is_none)
{
    UNUSED_STATE;
    static const struct {
        const char *usec, *pid;
    } cases[] = {{"20000", "1"}, {"20000", "x"}, {"soon", NULL}, {"-1", NULL}};
    for (size_t i = 0; i < SH_COUNT_OF(cases); i++) {
        int fd = manager_open(manager_path());
        sh_notify n;
        setenv("WATCHDOG_USEC", cases[i].usec, 1);
        if (cases[i].pid != NULL) setenv("WATCHDOG_PID", cases[i].pid, 1);
        sh_notify_open(&n);
        assert_true(n.fd >= 0);
        assert_int_equal(n.watchdog_ms, 0);
        sh_notify_close(&n);
        close(fd);
    }
}

TEST(nothing_is_sent_without_a_manager_or_to_a_wrong_address)
{
    UNUSED_STATE;
    char longer[200] = "/";
    memset(longer + 1, 'x', sizeof(longer) - 2);
    const char *names[] = {NULL, "", "relative", longer};
    for (size_t i = 0; i < SH_COUNT_OF(names); i++) {
        sh_notify n;
        if (names[i] != NULL) setenv("NOTIFY_SOCKET", names[i], 1);
        sh_notify_open(&n);
        assert_int_equal(n.fd, -1);
        sh_notify_send(&n, &(sh_notify_state){.ready = true, .text = "ready"});
        sh_notify_close(&n);
    }
    sh_notify n; /* nobody is bound to it: given up after the first message */
    setenv("NOTIFY_SOCKET", manager_path(), 1);
    sh_notify_open(&n);
    assert_true(n.fd >= 0);
    sh_notify_send(&n, &(sh_notify_state){.ready = true, .text = "ready"});
    assert_int_equal(n.fd, -1);
}

#ifdef __linux__
TEST(an_abstract_name_is_an_address)
{
    UNUSED_STATE;
    char name[64];
    snprintf(name, sizeof(name), "@%s/abstract", dir);
    int fd = manager_open(name);
    sh_notify n;
    sh_notify_open(&n);
    sh_notify_send(&n, &(sh_notify_state){.text = "ready"});
    assert_string_equal(message(fd, WAIT_MS), "STATUS=ready\n");
    sh_notify_close(&n);
    close(fd);
}
#endif

static void add(sh_children *c, const char *name, const char *script, sh_child_policy policy)
{
    char *argv[] = {"/bin/sh", "-c", (char *)script, NULL};
    CHECK_OK(
        sh_children_add(c, &(sh_child_spec){.name = name, .argv = argv, .policy = policy}, &err),
        err);
}

/* The manager of a run: collects what is reported, and asks for the next thing once it has seen
 * the one before. */
struct manager {
    int fd;
    char text[4096];
    const char *loading, *ready; /* reports to wait for */
    bool stopped;
};

static void manager_poll(void *arg)
{
    struct manager *m = arg;
    const char *text;
    for (size_t used = strlen(m->text); *(text = message(m->fd, 0)) != '\0'; used += strlen(text))
        snprintf(m->text + used, sizeof(m->text) - used, "%s", text);
    if (strstr(m->text, m->loading) != NULL && access("loaded", F_OK) != 0)
        fclose(fopen("loaded", "w"));
    if (m->stopped || strstr(m->text, m->ready) == NULL) return;
    m->stopped = true;
    kill(getpid(), SIGTERM);
}

static sh_children *managed(struct manager *m, bool when_alive)
{
    sh_children_hooks hooks = {.polled = manager_poll, .arg = m};
    m->fd = manager_open(manager_path());
    sh_children *c = sh_children_create();
    sh_children_set_hooks(c, &hooks);
    sh_children_set_notify(c, when_alive);
    return c;
}

static void managed_run(struct manager *m, sh_children *c)
{
    alarm(WAIT_MS / 1000 * 3);
    assert_int_equal(sh_children_run(c, 5000), 0);
    alarm(0);
    sh_children_free(c);
    manager_poll(m);
    close(m->fd);
}

TEST(a_supervisor_reports_loading_then_ready_then_draining)
{
    UNUSED_STATE;
    struct manager m = {.loading = "STATUS=engine: loading the model, 43 %\n",
                        .ready = "READY=1\nSTATUS=ready\n"};
    sh_children *c = managed(&m, false);
    add(c, "engine",
        "test -z \"$NOTIFY_SOCKET\" || exit 1; exec 3>/dev/fd/$SHOAL_READY_FD; printf '\\253' >&3; "
        "until [ -e loaded ]; do sleep 0.05; done; printf R >&3; exec sleep 100",
        SH_CHILD_RANK);
    add(c, "api", "printf R >/dev/fd/$SHOAL_READY_FD; exec sleep 100", SH_CHILD_SERVICE);
    managed_run(&m, c);
    const char *ready = strstr(m.text, m.ready);
    if (ready < strstr(m.text, m.loading) || strstr(ready, "STOPPING=1\nSTATUS=drain") == NULL)
        fail_msg("%s", m.text);
}

TEST(a_worker_is_ready_once_its_rank_lives)
{
    UNUSED_STATE;
    struct manager m = {.loading = "-", .ready = "READY=1\n"};
    sh_children *c = managed(&m, true);
    add(c, "rank", "printf . >/dev/fd/$SHOAL_READY_FD; exec sleep 100", SH_CHILD_RANK);
    managed_run(&m, c);
    if (strstr(m.text, "STATUS=rank: starting\n") == NULL) fail_msg("%s", m.text);
}

static int setup(void **state)
{
    sh_log_set_level(SH_LOG_ERROR);
    signal(SIGPIPE, SIG_IGN); /* as in the program */
    return make_dir(state) != 0 || chdir(dir) != 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_new_is_sent_once),
        cmocka_unit_test(the_watchdog_is_fed_at_half_its_interval),
        cmocka_unit_test(a_watchdog_of_another_process_or_without_a_number_is_none),
        cmocka_unit_test(nothing_is_sent_without_a_manager_or_to_a_wrong_address),
#ifdef __linux__
        cmocka_unit_test(an_abstract_name_is_an_address),
#endif
        cmocka_unit_test(a_supervisor_reports_loading_then_ready_then_draining),
        cmocka_unit_test(a_worker_is_ready_once_its_rank_lives),
    };
    return cmocka_run_group_tests(tests, setup, remove_dir);
}

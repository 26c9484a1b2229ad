/* What a process in the sandbox can still do, and what it cannot. Each check runs in a process of
 * its own, since the sandbox cannot be left. */
#include "base/sandbox.h"

#include "base/file.h"
#include "base/log.h"

#include "scratch.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char *model, *logs, *other;
static int port;

static bool reads(const char *path)
{
    int fd = open(path, O_RDONLY);
    if (fd >= 0) close(fd);
    return fd >= 0;
}

static bool writes(const char *path)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_APPEND, 0600);
    if (fd >= 0) close(fd);
    return fd >= 0;
}

static bool reads_model(void)
{
    char *file = sh_path_join(model, "config.json"), *link = sh_path_join(model, "link");
    return reads(file) && reads(link) && reads("/proc/self/status") && reads("/proc/meminfo");
}

static bool writes_log(void)
{
    char *file = sh_path_join(logs, "a.log"), *moved = sh_path_join(logs, "a.log.1");
    return writes(file) && writes(file) && writes(moved);
}

static bool reads_other(void)
{
    char *file = sh_path_join(other, "secret");
    return reads(file);
}

static bool writes_model(void)
{
    char *file = sh_path_join(model, "config.json"), *made = sh_path_join(model, "new");
    return writes(file) || writes(made) || unlink(file) == 0;
}

static bool runs_program(void)
{
    /* Even if it may not fork, it could still exec another program. */
    execl("/bin/true", "true", (char *)NULL);
    return errno != EPERM && errno != EACCES;
}

static bool forks(void)
{
    pid_t pid = fork();
    if (pid == 0) _exit(0);
    return pid > 0;
}

static void *thread_main(void *arg)
{
    *(bool *)arg = true;
    return NULL;
}

static bool starts_thread(void)
{
    pthread_t thread;
    bool ran = false;
    return pthread_create(&thread, NULL, thread_main, &ran) == 0 &&
           pthread_join(thread, NULL) == 0 && ran;
}

static bool connects(void)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    return fd >= 0 && connect(fd, (struct sockaddr *)&to, sizeof(to)) == 0;
}

static bool opens_raw(void)
{
    return socket(AF_PACKET, SOCK_RAW, 0) >= 0;
}

static bool listens(void)
{
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    return fd >= 0 && listen(fd, 1) == 0;
}

static bool kills_parent(void)
{
    return kill(getppid(), 0) == 0;
}

static bool becomes_other(void)
{
    return setuid(geteuid()) == 0;
}

typedef bool (*deed)(void);

static bool in_sandbox(deed fn, bool read_all)
{
    int wait_status = -1;
    pid_t pid = fork();
    if (pid == 0) {
        sh_sandbox box = {.read_all = read_all};
        char *log = sh_path_join(logs, "a.log");
        sh_log_set_level(SH_LOG_ERROR);
        sh_sandbox_add_folder(&box, model);
        sh_sandbox_add_log(&box, log);
        sh_sandbox_enter(&box);
        _exit(fn() ? 10 : 20);
    }
    assert_int_equal(waitpid(pid, &wait_status, 0), pid);
    assert_true(WIFEXITED(wait_status));
    int code = WEXITSTATUS(wait_status);
    if (code != 10 && code != 20) return true; /* it became another program */
    return code == 10;
}

#if defined(__linux__) && !HAS_ASAN
#define CAN_REFUSE true
#else
#define CAN_REFUSE false
#endif

/* Which of the two mechanisms the kernel has, found out by its effect. */
static bool has_landlock(void)
{
    return CAN_REFUSE && !in_sandbox(reads_other, false);
}

static bool has_seccomp(void)
{
    return CAN_REFUSE && !in_sandbox(forks, false);
}

TEST(what_the_api_does_still_works)
{
    UNUSED_STATE;
    assert_true(in_sandbox(reads_model, false));
    assert_true(in_sandbox(writes_log, false));
    assert_true(in_sandbox(starts_thread, false));
    assert_true(in_sandbox(listens, false));
    assert_true(in_sandbox(reads_other, true));
}

TEST(other_files_are_out_of_reach)
{
    UNUSED_STATE;
    if (!has_landlock()) skip();
    assert_false(in_sandbox(reads_other, false));
    assert_false(in_sandbox(writes_model, false));
    assert_false(in_sandbox(writes_model, true));
}

TEST(programs_processes_and_raw_sockets_are_out_of_reach)
{
    UNUSED_STATE;
    if (!has_seccomp()) skip();
    assert_false(in_sandbox(runs_program, false));
    assert_false(in_sandbox(forks, false));
    assert_false(in_sandbox(opens_raw, false));
    assert_false(in_sandbox(becomes_other, false));
}

TEST(a_newer_landlock_refuses_connections_and_signals)
{
    UNUSED_STATE;
    if (!has_landlock()) skip();
    bool connected = in_sandbox(connects, false), killed = in_sandbox(kills_parent, false);
    if (connected && killed) skip(); /* versions before 4 and 6 restrict neither */
    assert_false(connected);
}

TEST(a_crash_leaves_no_core)
{
    UNUSED_STATE;
    int wait_status;
    pid_t pid = fork();
    if (pid == 0) {
        struct rlimit limit;
        sh_core_dumps_off(true);
        _exit(getrlimit(RLIMIT_CORE, &limit) == 0 && limit.rlim_cur == 0 && starts_thread() ? 0
                                                                                            : 1);
    }
    assert_int_equal(waitpid(pid, &wait_status, 0), pid);
    assert_int_equal(wait_status, 0);
}

static int set_up(void **state)
{
    sh_err err;
    struct sockaddr_in at = {.sin_family = AF_INET};
    socklen_t len = sizeof(at);
    if (make_dir(state) != 0) return 1;
    model = sh_path_join(dir, "model");
    logs = sh_path_join(dir, "logs");
    other = sh_path_join(dir, "other");
    const char *const folders[] = {model, logs, other};
    for (size_t i = 0; i < 3; i++)
        if (mkdir(folders[i], 0755) != 0) return 1;
    char *blobs = sh_path_join(dir, "blobs"), *blob = sh_path_join(blobs, "b"),
         *config = sh_path_join(model, "config.json"), *link = sh_path_join(model, "link"),
         *secret = sh_path_join(other, "secret");
    bool made = mkdir(blobs, 0755) == 0 && sh_file_write(blob, "x", 1, &err) == SH_OK &&
                sh_file_write(config, "x", 1, &err) == SH_OK && symlink("../blobs/b", link) == 0 &&
                sh_file_write(secret, "x", 1, &err) == SH_OK;
    free(blobs);
    free(blob);
    free(config);
    free(link);
    free(secret);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (bind(fd, (struct sockaddr *)&at, sizeof(at)) != 0 || listen(fd, 8) != 0 ||
        getsockname(fd, (struct sockaddr *)&at, &len) != 0)
        return 1;
    port = ntohs(at.sin_port);
    return made ? 0 : 1;
}

static int tear_down(void **state)
{
    free(model);
    free(logs);
    free(other);
    return remove_dir(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_the_api_does_still_works),
        cmocka_unit_test(other_files_are_out_of_reach),
        cmocka_unit_test(programs_processes_and_raw_sockets_are_out_of_reach),
        cmocka_unit_test(a_newer_landlock_refuses_connections_and_signals),
        cmocka_unit_test(a_crash_leaves_no_core),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}

/* Landlock restricts files and connections, seccomp restricts system calls.
 *
 * Landlock rules are an allow list. The seccomp filter is a deny list: the system calls that our
 * libraries make differ between versions and machines, so an allow list would break on systems
 * where nobody has tested it. Denied is what turns one compromised process into more: running
 * programs, touching other processes, changing the mount tree, and kernel interfaces with a large
 * attack surface. Denied calls return EPERM instead of killing the process, so that a library which
 * merely probes for a feature carries on.
 *
 * Both need PR_SET_NO_NEW_PRIVS first; without it only root could install them, and a setuid
 * program could shed the restrictions.
 *
 * The constants of Landlock are defined here because the headers may be older than the kernel. */
#include "base/sandbox.h"
#include "base/sandbox_kernel.h"

#ifdef __linux__

#include "base/buf.h"
#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* At exit LeakSanitizer inspects its own process with ptrace, which all of this would prevent. */
#if defined(__SANITIZE_ADDRESS__)
#define IS_ASAN true
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define IS_ASAN true
#endif
#endif
#ifndef IS_ASAN
#define IS_ASAN false
#endif

void sh_process_hide(void)
{
    if (!IS_ASAN) prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
}

/* ---- landlock -------------------------------------------------------------------------------- */

enum { CREATE_RULESET = 444, ADD_RULE = 445, RESTRICT_SELF = 446 };
enum { RULESET_VERSION = 1, RULE_PATH_BENEATH = 1 };

enum {
    FS_EXECUTE = 1 << 0,
    FS_WRITE_FILE = 1 << 1,
    FS_READ_FILE = 1 << 2,
    FS_READ_DIR = 1 << 3,
    FS_MAKE_REG = 1 << 8,
    FS_ALL_1 = (1 << 13) - 1, /* all of ABI version 1 */
    FS_REFER = 1 << 13,       /* since version 2 */
    FS_TRUNCATE = 1 << 14,    /* since version 3 */
    FS_IOCTL_DEV = 1 << 15,   /* since version 5 */
    NET_CONNECT_TCP = 1 << 1, /* since version 4 */
    SCOPE_ABSTRACT_UNIX = 1,  /* since version 6 */
    SCOPE_SIGNAL = 2,         /* since version 6 */
    FS_READ = FS_READ_FILE | FS_READ_DIR,
    FS_FILE_RIGHTS = FS_EXECUTE | FS_WRITE_FILE | FS_READ_FILE | FS_TRUNCATE | FS_IOCTL_DEV,
};

struct ruleset_attr {
    uint64_t fs, net, scoped;
};

struct path_attr {
    uint64_t allowed;
    int32_t parent_fd;
} __attribute__((packed));

/* Files that libraries read on their own: shared objects, host names, the time zone, CPU details.
 */
static const char *const SYSTEM_PATHS[] = {
    "/usr",
    "/lib",
    "/lib64",
    "/etc/ld.so.cache",
    "/etc/ssl",
    "/etc/localtime",
    "/etc/hosts",
    "/etc/resolv.conf",
    "/etc/gai.conf",
    "/etc/host.conf",
    "/etc/nsswitch.conf",
    "/etc/services",
    "/proc/self",
    "/proc/meminfo",
    "/proc/cpuinfo",
    "/proc/stat",
    "/proc/loadavg",
    "/proc/uptime",
    "/proc/sys",
    "/sys",
    "/dev/null",
    "/dev/urandom",
};

static void rule_add(int ruleset, const char *path, uint64_t rights, uint64_t handled)
{
    struct stat st;
    int fd = open(path, O_PATH | O_CLOEXEC);
    if (fd < 0) return;
    /* The kernel rejects a rule that gives a file rights which only folders have. */
    if (fstat(fd, &st) == 0 && !S_ISDIR(st.st_mode)) rights &= FS_FILE_RIGHTS;
    struct path_attr rule = {.allowed = rights & handled, .parent_fd = fd};
    if (syscall(ADD_RULE, ruleset, RULE_PATH_BENEATH, &rule, 0) != 0)
        SH_LOGW("sandbox: %s: %s", path, strerror(errno));
    close(fd);
}

/* No rule grants FS_EXECUTE, not even for /usr: libraries can be mapped without it, programs cannot
 * be started. */
static void rules_add(int ruleset, const sh_sandbox *box, uint64_t handled)
{
    if (box->read_all) rule_add(ruleset, "/", FS_READ, handled);
    for (size_t i = 0; i < SH_COUNT_OF(SYSTEM_PATHS); i++)
        rule_add(ruleset, SYSTEM_PATHS[i], FS_READ, handled);
    for (int i = 0; i < box->read_count; i++) rule_add(ruleset, box->read[i], FS_READ, handled);
    for (int i = 0; i < box->write_count; i++)
        rule_add(ruleset, box->write[i], FS_WRITE_FILE | FS_MAKE_REG | FS_READ, handled);
}

/* Returns the version of Landlock that is in force now, 0 for none. A right can only be denied if
 * the ruleset handles it, and naming one that this kernel does not know fails as a whole; so rights
 * and the size of the struct follow the version. TCP connects are handled without any rule: all are
 * denied. */
static int landlock_enter(const sh_sandbox *box)
{
    int version = (int)syscall(CREATE_RULESET, NULL, 0, RULESET_VERSION);
    if (version < 1) return 0;
    struct ruleset_attr attr = {.fs = FS_ALL_1};
    if (version >= 2) attr.fs |= FS_REFER;
    if (version >= 3) attr.fs |= FS_TRUNCATE;
    if (version >= 4) attr.net = NET_CONNECT_TCP;
    if (version >= 5) attr.fs |= FS_IOCTL_DEV;
    if (version >= 6) attr.scoped = SCOPE_ABSTRACT_UNIX | SCOPE_SIGNAL;
    size_t size = version >= 6   ? sizeof(attr)
                  : version >= 4 ? offsetof(struct ruleset_attr, scoped)
                                 : offsetof(struct ruleset_attr, net);
    int ruleset = (int)syscall(CREATE_RULESET, &attr, size, 0);
    if (ruleset < 0) return 0;
    rules_add(ruleset, box, attr.fs);
    bool entered = syscall(RESTRICT_SELF, ruleset, 0) == 0;
    close(ruleset);
    return entered ? version : 0;
}

/* ---- seccomp --------------------------------------------------------------------------------- */

#if defined(__x86_64__)
#define ARCH AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define ARCH AUDIT_ARCH_AARCH64
#endif

#ifdef ARCH

static const int REFUSED[] = {
    /* programs and other processes */
    SYS_execve,
    SYS_execveat,
    SYS_ptrace,
    SYS_process_vm_readv,
    SYS_process_vm_writev,
    SYS_kcmp,
    SYS_pidfd_getfd,
    SYS_personality,
#ifdef SYS_fork
    SYS_fork,
    SYS_vfork,
#endif
    /* the file tree */
    SYS_mount,
    SYS_umount2,
    SYS_pivot_root,
    SYS_chroot,
    SYS_open_tree,
    SYS_move_mount,
    SYS_fsopen,
    SYS_fsconfig,
    SYS_fsmount,
    SYS_fspick,
    SYS_mknodat,
    SYS_quotactl,
    SYS_swapon,
    SYS_swapoff,
    SYS_name_to_handle_at,
    SYS_open_by_handle_at,
#ifdef SYS_mknod
    SYS_mknod,
#endif
#ifdef SYS_mount_setattr
    SYS_mount_setattr,
#endif
    /* other users and other namespaces */
    SYS_setuid,
    SYS_setgid,
    SYS_setreuid,
    SYS_setregid,
    SYS_setresuid,
    SYS_setresgid,
    SYS_setfsuid,
    SYS_setfsgid,
    SYS_setgroups,
    SYS_capset,
    SYS_setns,
    SYS_unshare,
    /* the kernel */
    SYS_bpf,
    SYS_perf_event_open,
    SYS_userfaultfd,
    SYS_init_module,
    SYS_finit_module,
    SYS_delete_module,
    SYS_kexec_load,
    SYS_reboot,
    SYS_syslog,
    SYS_acct,
    SYS_sethostname,
    SYS_setdomainname,
    SYS_settimeofday,
    SYS_clock_settime,
    SYS_adjtimex,
    SYS_clock_adjtime,
    SYS_keyctl,
    SYS_add_key,
    SYS_request_key,
    SYS_vhangup,
#ifdef SYS_kexec_file_load
    SYS_kexec_file_load,
#endif
#ifdef SYS_io_uring_setup
    SYS_io_uring_setup,
    SYS_io_uring_enter,
    SYS_io_uring_register,
#endif
#ifdef SYS_iopl
    SYS_iopl,
    SYS_ioperm,
    SYS_modify_ldt,
#endif
};

enum { FILTER_MAX = 128, X32_BIT = 0x40000000 };

typedef struct {
    struct sock_filter code[FILTER_MAX];
    unsigned short count;
} filter;

static void put(filter *f, uint16_t code, uint32_t k, uint8_t jump_true, uint8_t jump_false)
{
    SH_ASSERT(f->count < FILTER_MAX);
    f->code[f->count++] = (struct sock_filter){code, jump_true, jump_false, k};
}

static void put_load(filter *f, size_t offset)
{
    put(f, BPF_LD | BPF_W | BPF_ABS, (uint32_t)offset, 0, 0);
}

static void put_return(filter *f, uint32_t action)
{
    put(f, BPF_RET | BPF_K, action, 0, 0);
}

/* If the loaded value equals k, return that action. */
static void put_if(filter *f, uint32_t k, uint32_t action)
{
    put(f, BPF_JMP | BPF_JEQ | BPF_K, k, 0, 1);
    put_return(f, action);
}

static const uint32_t NO = SECCOMP_RET_ERRNO | EPERM, NONE = SECCOMP_RET_ERRNO | ENOSYS,
                      YES = SECCOMP_RET_ALLOW;

/* New threads are allowed, new processes are not. clone3 takes its flags through a pointer, which a
 * filter cannot follow; ENOSYS makes libraries fall back to clone. */
static void put_clone(filter *f)
{
    put_if(f, SYS_clone3, NONE);
    put(f, BPF_JMP | BPF_JEQ | BPF_K, SYS_clone, 0, 4);
    put_load(f, offsetof(struct seccomp_data, args[0]));
    put(f, BPF_JMP | BPF_JSET | BPF_K, CLONE_THREAD, 0, 1);
    put_return(f, YES);
    put_return(f, NO);
}

/* Only IP, Unix and netlink sockets (getaddrinfo reads the address tables through netlink). The
 * jump past this block must match its length: one load, two instructions per domain, one return. */
static void put_socket(filter *f)
{
    static const uint32_t domains[] = {AF_UNIX, AF_INET, AF_INET6, AF_NETLINK};
    put(f, BPF_JMP | BPF_JEQ | BPF_K, SYS_socket, 0, (uint8_t)(2 * SH_COUNT_OF(domains) + 2));
    put_load(f, offsetof(struct seccomp_data, args[0]));
    for (size_t i = 0; i < SH_COUNT_OF(domains); i++) put_if(f, domains[i], YES);
    put_return(f, SECCOMP_RET_ERRNO | EAFNOSUPPORT);
}

static bool seccomp_enter(void)
{
    filter f = {.count = 0};
    put_load(&f, offsetof(struct seccomp_data, arch));
    put(&f, BPF_JMP | BPF_JEQ | BPF_K, ARCH, 1, 0);
    put_return(&f, NO); /* another architecture has other numbers: deny all of its calls */
    put_load(&f, offsetof(struct seccomp_data, nr));
#ifdef __x86_64__ /* x32 has the same architecture and its own numbers */
    put(&f, BPF_JMP | BPF_JSET | BPF_K, X32_BIT, 0, 1);
    put_return(&f, NO);
#endif
    /* All matches jump to one shared return, just past the unconditional jump below. Jump offsets
     * are 8 bits, which limits the list to 255 entries. */
    for (size_t i = 0; i < SH_COUNT_OF(REFUSED); i++)
        put(&f, BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)REFUSED[i],
            (uint8_t)(SH_COUNT_OF(REFUSED) - i), 0);
    put(&f, BPF_JMP | BPF_JA, 1, 0, 0);
    put_return(&f, NO);
    put_clone(&f);
    put_socket(&f);
    put_return(&f, YES);
    struct sock_fprog program = {.len = f.count, .filter = f.code};
    return syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program) == 0;
}

#else
static bool seccomp_enter(void)
{
    return false;
}
#endif

/* Each part works without the other, and a kernel without both is no reason not to start. */
void sh_sandbox_enter(const sh_sandbox *box)
{
    sh_buf text = {0};
    if (IS_ASAN || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) {
        SH_LOGI("sandbox: none (%s)", IS_ASAN ? "AddressSanitizer build" : strerror(errno));
        return;
    }
    int version = landlock_enter(box);
    if (version > 0)
        sh_buf_addf(&text, "files (landlock %d%s%s)", version,
                    version >= 4 ? ", no outgoing TCP" : "",
                    box->read_all ? "; all files readable" : "");
    if (seccomp_enter()) sh_buf_addf(&text, "%ssystem calls (seccomp)", text.len > 0 ? ", " : "");
    SH_LOGI("sandbox: %s", text.len > 0 ? text.ptr
                                        : "none (this kernel supports neither landlock nor "
                                          "seccomp)");
    sh_buf_reset(&text);
}

#else

void sh_process_hide(void)
{
}

void sh_sandbox_enter(const sh_sandbox *box)
{
    (void)box;
}

#endif

/* The levels of each architecture, lowest first. Each row has the best tables for that level; those
 * of a lower level are reused where a higher one adds nothing. Detection must include the operating
 * system: a CPU with AVX-512 under a kernel that does not save its registers must not use it, which
 * __builtin_cpu_supports checks. */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/dot.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#if defined(__x86_64__)
#include <cpuid.h>
#elif defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>
#elif defined(__APPLE__)
#include <sys/sysctl.h>
#endif

static bool always(void)
{
    return true;
}

#if defined(__x86_64__)

/* Asks the CPU only; the operating system's part is that of AVX, which the caller checks. */
static bool has_f16c(void)
{
    unsigned a, b, c, d;
    return __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
}

static bool has_avx2(void)
{
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c();
}

static bool has_avx512(void)
{
    return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
}

static bool has_avx512vnni(void)
{
    return has_avx512() && __builtin_cpu_supports("avx512vnni");
}

/* CPUID leaf 7, subleaf 1, EAX bit 5. */
static bool has_avx512bf16(void)
{
    unsigned a, b, c, d;
    return has_avx512vnni() && __get_cpuid_count(7, 1, &a, &b, &c, &d) != 0 && (a & 1u << 5) != 0;
}

static const sh_cpu_level levels[] = {
    {"generic", always, &sh_matrix_generic, &sh_vector_generic},
    {"avx2", has_avx2, &sh_matrix_avx2, &sh_vector_avx2},
    {"avx512", has_avx512, &sh_matrix_avx512, &sh_vector_avx512},
    {"avx512vnni", has_avx512vnni, &sh_matrix_avx512vnni, &sh_vector_avx512},
    {"avx512bf16", has_avx512bf16, &sh_matrix_avx512bf16, &sh_vector_avx512},
};

#elif defined(__aarch64__)

#if defined(__linux__)
static bool has_dotprod(void)
{
    unsigned long caps = getauxval(AT_HWCAP);
    return (caps & 1ul << 20) != 0 && (caps & 1ul << 10) != 0; /* ASIMDDP and ASIMDHP */
}

static bool has_i8mm(void)
{
    return has_dotprod() && (getauxval(AT_HWCAP2) & 1ul << 13) != 0;
}
#else /* every CPU that runs macOS on arm64 has dot products */
static bool has_dotprod(void)
{
    return true;
}

static bool has_i8mm(void)
{
    int present = 0;
    size_t len = sizeof(present);
    return sysctlbyname("hw.optional.arm.FEAT_I8MM", &present, &len, NULL, 0) == 0 && present != 0;
}
#endif

static const sh_cpu_level levels[] = {
    {"generic", always, &sh_matrix_generic, &sh_vector_generic},
    {"neon", always, &sh_matrix_neon, &sh_vector_neon},
    {"dotprod", has_dotprod, &sh_matrix_dotprod, &sh_vector_neon},
    {"i8mm", has_i8mm, &sh_matrix_i8mm, &sh_vector_neon},
};

#else

static const sh_cpu_level levels[] = {{"generic", always, &sh_matrix_generic, &sh_vector_generic}};

#endif

/* Counts only the levels that are present: they need not be a prefix of the table. */
const sh_cpu_level *sh_cpu_level_at(int idx)
{
    for (size_t i = 0; i < SH_COUNT_OF(levels); i++)
        if (levels[i].present() && idx-- == 0) return &levels[i];
    return NULL;
}

sh_status sh_cpu_level_find(const char *name, const sh_cpu_level **out, sh_err *err)
{
    bool best = name == NULL || strcmp(name, "auto") == 0;
    const sh_cpu_level *level, *found = NULL;
    char list[128] = "";
    for (int i = 0; (level = sh_cpu_level_at(i)) != NULL; i++) {
        size_t len = strlen(list);
        snprintf(list + len, sizeof(list) - len, "%s%s", i == 0 ? "" : ", ", level->name);
        if (best || strcmp(name, level->name) == 0) found = level;
    }
    if (found == NULL)
        return sh_err_set(err, SH_ERR_INPUT,
                          "CPU level '%s' is not available; this CPU supports %s", name, list);
    *out = found;
    return SH_OK;
}

/* Called for every draw from a whole row, so the answer is kept: in a virtual machine each CPUID
 * costs microseconds. */
const sh_row_kernels *sh_row_kernels_best(void)
{
    static const sh_row_kernels *_Atomic known;
    const sh_row_kernels *rows = atomic_load_explicit(&known, memory_order_relaxed);
    if (rows != NULL) return rows;
    const sh_cpu_level *best = sh_cpu_level_at(0);
    for (int i = 1; sh_cpu_level_at(i) != NULL; i++) best = sh_cpu_level_at(i);
    atomic_store_explicit(&known, &best->vector->rows, memory_order_relaxed);
    return &best->vector->rows;
}

/* A step allocates nothing: all memory is planned when the model is loaded. */
#include "rig.h"

#if defined(__GLIBC__) && !HAS_ASAN && !HAS_TSAN
#define COUNTED 1
#else
#define COUNTED 0
#endif

#if COUNTED
#include <stdatomic.h>

extern void *__libc_malloc(size_t size);
extern void *__libc_calloc(size_t count, size_t size);
extern void *__libc_realloc(void *ptr, size_t size);
static atomic_long calls;

void *malloc(size_t size)
{
    atomic_fetch_add(&calls, 1);
    return __libc_malloc(size);
}

void *calloc(size_t count, size_t size)
{
    atomic_fetch_add(&calls, 1);
    return __libc_calloc(count, size);
}

void *realloc(void *ptr, size_t size)
{
    atomic_fetch_add(&calls, 1);
    return __libc_realloc(ptr, size);
}

TEST(a_step_allocates_nothing)
{
    golden g = golden_load(*state);
    rig r = rig_open(g.dir, false, NULL, 2);
    int count = g.len < 32 ? g.len : 32;
    float *logits = sh_alloc_array((size_t)(count * g.vocab), sizeof(*logits));
    long before = atomic_load(&calls);
    rig_run(&r, g.ids, 0, count - 1, g.len, 0, logits);
    rig_run(&r, g.ids, count - 1, 1, g.len, 0, logits);
    assert_int_equal(atomic_load(&calls) - before, 0);
    free(logits);
    rig_close(&r);
    golden_free(&g);
}
#else
TEST(a_step_allocates_nothing)
{
    UNUSED_STATE;
    skip();
}
#endif

int main(void)
{
    return rig_each_model("a step allocates nothing", a_step_allocates_nothing);
}

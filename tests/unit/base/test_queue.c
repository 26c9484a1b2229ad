#include "base/queue.h"

#include "test.h"

#include <pthread.h>

enum { CAP = 8, ITEMS = 20000, PRODUCERS = 3, CONSUMERS = 2 };

static void *produce(void *arg)
{
    sh_queue *queue = arg;
    for (int i = 1; i <= ITEMS; i++)
        while (sh_queue_push(queue, &i) == SH_AGAIN) sched_yield();
    return NULL;
}

static void *consume(void *arg)
{
    sh_queue *queue = arg;
    int64_t *sum = calloc(1, sizeof(*sum));
    int item;
    while (sh_queue_pop(queue, &item, SH_DEADLINE_NEVER) == SH_OK) *sum += item;
    return sum;
}

TEST(every_item_arrives_once_among_many_threads)
{
    UNUSED_STATE;
    sh_queue *queue = sh_queue_create(CAP, sizeof(int));
    pthread_t producers[PRODUCERS], consumers[CONSUMERS];
    for (int i = 0; i < PRODUCERS; i++) pthread_create(&producers[i], NULL, produce, queue);
    for (int i = 0; i < CONSUMERS; i++) pthread_create(&consumers[i], NULL, consume, queue);
    for (int i = 0; i < PRODUCERS; i++) pthread_join(producers[i], NULL);
    sh_queue_close(queue);
    int64_t sum = 0;
    for (int i = 0; i < CONSUMERS; i++) {
        void *part;
        pthread_join(consumers[i], &part);
        sum += *(int64_t *)part;
        free(part);
    }
    assert_int_equal(sum, (int64_t)PRODUCERS * ITEMS * (ITEMS + 1) / 2);
    sh_queue_free(queue);
}

TEST(a_full_queue_says_so_at_once)
{
    UNUSED_STATE;
    sh_queue *queue = sh_queue_create(2, sizeof(int));
    int item = 1;
    assert_int_equal(sh_queue_push(queue, &item), SH_OK);
    assert_int_equal(sh_queue_push(queue, &item), SH_OK);
    assert_int_equal(sh_queue_push(queue, &item), SH_AGAIN);
    assert_int_equal(sh_queue_count(queue), 2);
    sh_queue_close(queue);
    assert_int_equal(sh_queue_push(queue, &item), SH_ERR_CANCELLED);
    assert_int_equal(sh_queue_pop(queue, &item, SH_DEADLINE_NEVER), SH_OK);
    assert_int_equal(sh_queue_pop(queue, &item, SH_DEADLINE_NEVER), SH_OK);
    assert_int_equal(sh_queue_pop(queue, &item, SH_DEADLINE_NEVER), SH_ERR_CANCELLED);
    sh_queue_free(queue);
}

TEST(waiting_ends_at_the_deadline)
{
    UNUSED_STATE;
    sh_queue *queue = sh_queue_create(2, sizeof(int));
    int item;
    int64_t start = sh_clock_ns();
    assert_int_equal(sh_queue_pop(queue, &item, sh_deadline_in_ms(50)), SH_AGAIN);
    int64_t took_ms = (sh_clock_ns() - start) / 1000000;
    assert_in_range(took_ms, 49, 2000);
    sh_queue_free(queue);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_item_arrives_once_among_many_threads),
        cmocka_unit_test(a_full_queue_says_so_at_once),
        cmocka_unit_test(waiting_ends_at_the_deadline),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

#include "cluster/neighbours.h"

#include "test.h"

#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#define IP(a, b, c, d) ((uint32_t)(a) << 24 | (b) << 16 | (c) << 8 | (d))

TEST(only_small_networks_are_scanned)
{
    UNUSED_STATE;
    sh_neighbours list = {.count = 0};
    sh_neighbours_candidates(IP(10, 254, 0, 1), 0xfffffffc, false, &list); /* /30 */
    assert_int_equal(list.count, 1);
    assert_string_equal(list.address[0], "10.254.0.2");
    sh_neighbours_candidates(IP(10, 254, 0, 8), 0xfffffffe, false, &list); /* /31 */
    assert_int_equal(list.count, 2);
    assert_string_equal(list.address[1], "10.254.0.9");
    sh_neighbours_candidates(IP(10, 0, 0, 1), 0xffffffff, false, &list); /* /32: alone */
    assert_int_equal(list.count, 2);
    sh_neighbours_candidates(IP(192, 168, 1, 7), 0xffffff00, false, &list); /* an office */
    assert_int_equal(list.count, 2);
    sh_neighbours_candidates(IP(192, 168, 1, 7), 0xffffff00, true, &list);
    assert_int_equal(list.count, 2 + 253);
    sh_neighbours_candidates(IP(192, 168, 2, 7), 0xffffff00, true, &list);
    assert_int_equal(list.count, SH_NEIGHBOURS_MAX);
}

TEST(who_accepts_a_connection_is_kept)
{
    UNUSED_STATE;
    struct sockaddr_in own = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(IP(127, 0, 0, 2))};
    socklen_t len = sizeof(own);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (bind(fd, (struct sockaddr *)&own, len) != 0) { /* not every system has all of 127/8 */
        close(fd);
        skip();
    }
    assert_int_equal(listen(fd, 4), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&own, &len), 0);
    sh_neighbours list = {.address = {"127.0.0.1", "127.0.0.2", "127.0.0.3"}, .count = 3};
    sh_neighbours_probe(&list, ntohs(own.sin_port), 10000);
    assert_int_equal(list.count, 1);
    assert_string_equal(list.address[0], "127.0.0.2");
    close(fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_small_networks_are_scanned),
        cmocka_unit_test(who_accepts_a_connection_is_kept),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

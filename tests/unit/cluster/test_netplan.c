/* Networks of hosts that exist only as data: what they share, what is chosen, which warnings they
 * get. */
#include "cluster/netplan.h"

#include "test.h"

enum { HOSTS = 3 };

static sh_fingerprint fp[HOSTS];
static sh_net_host hosts[HOSTS];
static sh_net_link links[64];
static sh_findings findings;

static void host(int idx, const char *name, const char *json)
{
    sh_err err;
    CHECK_OK(sh_fingerprint_parse(sh_str_of(json), name, &fp[idx], &err), err);
    hosts[idx] = (sh_net_host){name, &fp[idx]};
}

#define IFACE(name, address) "{\"name\":\"" name "\",\"up\":true,\"addresses\":[\"" address "\"]}"
#define LO "{\"name\":\"lo\",\"up\":true,\"loopback\":true,\"addresses\":[\"127.0.0.1/8\"]}"

static int says(const char *part)
{
    int count = 0;
    for (int i = 0; i < findings.count; i++)
        count += strstr(findings.finding[i].text, part) != NULL;
    return count;
}

static int clean(void **state)
{
    (void)state;
    sh_findings_reset(&findings);
    memset(links, 0, sizeof(links));
    return 0;
}

static void reached(sh_net_link *link, double rtt_us, double gbit_s)
{
    link->tried = link->reached = true;
    link->rtt_us = rtt_us;
    link->gbit_s = gbit_s;
}

static void two_networks(void)
{
    host(0, "a",
         "{\"interfaces\":[" LO "," IFACE("e0", "10.1.0.1/24") "," IFACE("e1", "10.2.0.1/24") "]}");
    host(1, "b",
         "{\"interfaces\":[" LO "," IFACE("e0", "10.1.0.2/24") "," IFACE("e1", "10.2.0.2/24") "]}");
    host(2, "c",
         "{\"interfaces\":[" LO "," IFACE("e0", "10.1.0.3/24") "," IFACE("e1", "10.2.0.3/24") "]}");
}

TEST(every_pair_has_a_link_for_each_network_it_shares)
{
    UNUSED_STATE;
    two_networks();
    int count = sh_net_links(hosts, HOSTS, links, 64);
    assert_int_equal(count, 6);
    assert_string_equal(links[0].network, "10.1.0.0/24");
    assert_string_equal(links[0].from_address, "10.1.0.1");
    assert_string_equal(links[0].address, "10.1.0.2");
    assert_int_equal(sh_net_links(hosts, HOSTS, links, 3), 3);
}

TEST(an_address_that_both_have_is_no_link)
{
    UNUSED_STATE;
    host(0, "a",
         "{\"interfaces\":[" IFACE("docker0", "172.17.0.1/16") "," IFACE("e0", "10.1.0.1/24") "]}");
    host(1, "b",
         "{\"interfaces\":[" IFACE("docker0", "172.17.0.1/16") "," IFACE("e0", "10.1.0.2/24") "]}");
    assert_int_equal(sh_net_links(hosts, 2, links, 64), 1);
    assert_string_equal(links[0].address, "10.1.0.2");
}

TEST(hosts_without_a_common_network_try_all_addresses_but_link_local_ones)
{
    UNUSED_STATE;
    host(0, "a", "{\"interfaces\":[" IFACE("e0", "10.1.0.1/24") "]}");
    host(1, "b",
         "{\"interfaces\":[" LO "," IFACE("e0", "10.5.0.2/24") "," IFACE(
             "e1", "fe80::2/64") "," IFACE("e2", "fd00::2/64") "]}");
    assert_int_equal(sh_net_links(hosts, 2, links, 64), 2);
    assert_string_equal(links[0].network, "routed");
    assert_string_equal(links[1].address, "fd00::2");
}

TEST(the_address_whose_worst_link_is_best_is_chosen)
{
    UNUSED_STATE;
    const char *address[HOSTS];
    two_networks();
    int count = sh_net_links(hosts, HOSTS, links, 64);
    for (int i = 0; i < count; i++) reached(&links[i], 50, 10);
    /* the first network is fast between a and c, but slow to b */
    for (int i = 0; i < count; i++)
        if (strcmp(links[i].network, "10.1.0.0/24") == 0)
            reached(&links[i], 40, links[i].from == 1 || links[i].to == 1 ? 0.1 : 20);
    sh_net_choose(hosts, HOSTS, links, count, address, &findings);
    assert_string_equal(address[0], "10.2.0.1");
    assert_string_equal(address[1], "10.2.0.2");
    assert_string_equal(address[2], "10.2.0.3");
    assert_string_equal(sh_net_best(links, count, 0, 2)->network, "10.1.0.0/24");
    assert_int_equal(sh_findings_worst(&findings), SH_FINDING_OK);
}

TEST(pairs_that_do_not_reach_each_other_are_named)
{
    UNUSED_STATE;
    const char *address[HOSTS];
    two_networks();
    int count = sh_net_links(hosts, HOSTS, links, 64);
    for (int i = 0; i < count; i++)
        if (links[i].from != 1)
            reached(&links[i], 50, 1);
        else
            snprintf(links[i].fault, sizeof(links[i].fault), "No route to host");
    sh_net_choose(hosts, HOSTS, links, count, address, &findings);
    assert_int_equal(says("no connection: No route to host"), 1);
    assert_int_equal(says("1 of 2 others cannot reach it"), 2);
    assert_int_equal(sh_findings_worst(&findings), SH_FINDING_FAIL);
}

TEST(a_host_that_did_not_answer_has_no_links)
{
    UNUSED_STATE;
    const char *address[HOSTS];
    two_networks();
    hosts[1].fp = NULL;
    int count = sh_net_links(hosts, HOSTS, links, 64);
    assert_int_equal(count, 2);
    for (int i = 0; i < count; i++) reached(&links[i], 50, 1);
    sh_net_choose(hosts, HOSTS, links, count, address, &findings);
    assert_null(address[1]);
    assert_non_null(address[2]);
}

TEST(latency_counts_for_links_of_the_same_width)
{
    UNUSED_STATE;
    sh_net_link quick = {0}, late = {0}, none = {0};
    reached(&quick, 50, 1);
    reached(&late, 5000, 1);
    assert_true(sh_net_link_seconds(&quick) < sh_net_link_seconds(&late));
    assert_true(sh_net_link_seconds(&none) > 1e9);
}

TEST(a_gateway_inside_the_network_of_another_interface_is_a_failure)
{
    UNUSED_STATE;
    host(0, "a",
         "{\"interfaces\":[" IFACE("en0", "192.168.0.20/24") "," IFACE(
             "en5", "192.168.0.1/30") "],"
                                      "\"gateways\":[{\"address\":\"192.168.0.2\",\"interface\":"
                                      "\"en0\"}]}");
    sh_net_check(hosts, 1, &findings);
    assert_int_equal(says("192.168.0.0/30 on en5 holds the default gateway 192.168.0.2"), 1);
    assert_int_equal(says("overlaps"), 1);
    sh_findings_reset(&findings);
    host(
        0, "a",
        "{\"interfaces\":[" IFACE("en0", "192.168.0.20/24") "," IFACE(
            "en5",
            "10.254.0.1/30") "],"
                             "\"gateways\":[{\"address\":\"192.168.0.2\",\"interface\":\"en0\"}]}");
    sh_net_check(hosts, 1, &findings);
    assert_int_equal(findings.count, 0);
}

#define BRIDGE(address, stp, mac)                                                                  \
    "{\"name\":\"br0\",\"up\":true,\"is_bridge\":true,\"stp\":" stp ",\"mac\":\"" mac              \
    "\",\"addresses\":[\"" address "\"]}"
#define PORT(name) "{\"name\":\"" name "\",\"up\":true,\"bridge\":\"br0\",\"addresses\":[]}"
#define SEEN(port, mac) "{\"port\":\"" port "\",\"mac\":\"" mac "\"}"

TEST(two_ports_on_which_one_host_is_heard_are_a_loop)
{
    UNUSED_STATE;
    host(0, "a",
         "{\"interfaces\":[" BRIDGE("10.3.0.1/24", "false", "0a:00") "," PORT("p1") "," PORT(
             "p2") "],"
                   "\"seen\":[" SEEN("p1", "0b:00") "," SEEN("p2", "0b:00") "]}");
    host(1, "b", "{\"interfaces\":[" BRIDGE("10.3.0.2/24", "false", "0b:00") "," PORT("q1") "]}");
    sh_net_check(hosts, 2, &findings);
    assert_int_equal(says("2 links between the two are in one bridge"), 1);
    assert_int_equal(sh_findings_worst(&findings), SH_FINDING_FAIL);
}

TEST(several_ports_on_both_sides_are_a_warning_and_spanning_tree_is_none)
{
    UNUSED_STATE;
    host(0, "a",
         "{\"interfaces\":[" BRIDGE("10.3.0.1/24", "false",
                                    "0a:00") "," PORT("p1") "," PORT("p2") "]}");
    host(1, "b",
         "{\"interfaces\":[" BRIDGE("10.3.0.2/24", "false",
                                    "0b:00") "," PORT("q1") "," PORT("q2") "]}");
    sh_net_check(hosts, 2, &findings);
    assert_int_equal(sh_findings_worst(&findings), SH_FINDING_WARN);
    sh_findings_reset(&findings);
    host(1, "b",
         "{\"interfaces\":[" BRIDGE("10.3.0.2/24", "true",
                                    "0b:00") "," PORT("q1") "," PORT("q2") "]}");
    sh_net_check(hosts, 2, &findings);
    assert_int_equal(findings.count, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(every_pair_has_a_link_for_each_network_it_shares, clean),
        cmocka_unit_test_setup(an_address_that_both_have_is_no_link, clean),
        cmocka_unit_test_setup(hosts_without_a_common_network_try_all_addresses_but_link_local_ones,
                               clean),
        cmocka_unit_test_setup(the_address_whose_worst_link_is_best_is_chosen, clean),
        cmocka_unit_test_setup(pairs_that_do_not_reach_each_other_are_named, clean),
        cmocka_unit_test_setup(a_host_that_did_not_answer_has_no_links, clean),
        cmocka_unit_test_setup(latency_counts_for_links_of_the_same_width, clean),
        cmocka_unit_test_setup(a_gateway_inside_the_network_of_another_interface_is_a_failure,
                               clean),
        cmocka_unit_test_setup(two_ports_on_which_one_host_is_heard_are_a_loop, clean),
        cmocka_unit_test_setup(several_ports_on_both_sides_are_a_warning_and_spanning_tree_is_none,
                               clean),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    sh_findings_reset(&findings);
    return failed;
}

#include "cluster/cables.h"

#include "test.h"

enum { HOSTS = 4 };

static sh_fingerprint fp[HOSTS];
static sh_net_host hosts[HOSTS];
static sh_cables cables;

static int clean(void **state)
{
    UNUSED_STATE;
    memset(fp, 0, sizeof(fp));
    memset(&cables, 0, sizeof(cables));
    for (int i = 0; i < HOSTS; i++) hosts[i] = (sh_net_host){"host", &fp[i]};
    return 0;
}

/* A host with interfaces e0, e1, ... up to count, and an RDMA device "rI" on each. */
static void interfaces(int host, int count)
{
    fp[host].interface_count = fp[host].device_count = count;
    for (int i = 0; i < count; i++) {
        snprintf(fp[host].interface[i].name, SH_FP_NAME_MAX, "e%d", i);
        fp[host].interface[i].up = true;
        snprintf(fp[host].device[i].name, SH_FP_NAME_MAX, "r%d", i);
        snprintf(fp[host].device[i].interface, SH_FP_NAME_MAX, "e%d", i);
        strcpy(fp[host].device[i].state, "ACTIVE");
    }
}

static void address(int host, int interface, int a, int b, int c, int d, int prefix)
{
    sh_fp_address *out = &fp[host].address[fp[host].address_count++];
    *out = (sh_fp_address){.bytes = {(uint8_t)a, (uint8_t)b, (uint8_t)c, (uint8_t)d},
                           .len = 4,
                           .prefix = prefix,
                           .interface = interface};
    snprintf(out->text, sizeof(out->text), "%d.%d.%d.%d", a, b, c, d);
}

static void cable(int a, int x, int b, int y)
{
    sh_cables_add(&cables, (sh_cable){{a, b}, {x, y}});
}

TEST(a_cable_is_known_once_whatever_its_direction)
{
    UNUSED_STATE;
    interfaces(0, 2);
    interfaces(1, 2);
    cable(0, 1, 1, 0);
    cable(1, 0, 0, 1);
    assert_int_equal(cables.count, 1);
    assert_true(sh_cables_is_direct(&cables, hosts, 0));
    cable(0, 1, 2, 0); /* a third host behind the same interface: a switch */
    assert_false(sh_cables_is_direct(&cables, hosts, 0));
}

TEST(an_interface_with_the_default_gateway_is_not_a_direct_cable)
{
    UNUSED_STATE;
    interfaces(0, 1);
    interfaces(1, 1);
    cable(0, 0, 1, 0);
    fp[1].gateway_count = 1;
    strcpy(fp[1].gateway[0].interface, "e0");
    assert_false(sh_cables_is_direct(&cables, hosts, 0));
}

TEST(measured_links_show_cables_too)
{
    UNUSED_STATE;
    interfaces(0, 2);
    interfaces(1, 2);
    address(0, 1, 10, 0, 0, 1, 24);
    address(1, 0, 10, 0, 0, 2, 24);
    sh_net_link links[2] = {
        {.from = 0, .to = 1, .from_address = "10.0.0.1", .address = "10.0.0.2", .reached = true},
        {.from = 0, .to = 1, .from_address = "", .address = "10.0.0.2", .reached = true}};
    sh_cables_add_links(&cables, hosts, links, 2);
    assert_int_equal(cables.count, 1); /* the second is routed */
    assert_int_equal(cables.cable[0].interface[0], 1);
    links[0].reached = false;
    cables.count = 0;
    sh_cables_add_links(&cables, hosts, links, 1);
    assert_int_equal(cables.count, 0);
}

TEST(devices_are_joined_by_cables_each_once)
{
    UNUSED_STATE;
    sh_rdma_link links[SH_RDMA_LINKS_MAX];
    interfaces(0, 2);
    interfaces(1, 2);
    for (int x = 0; x < 2; x++)
        for (int y = 0; y < 2; y++) cable(0, x, 1, y); /* all on one switch */
    assert_int_equal(sh_cables_rdma_links(&cables, hosts, 0, 1, links), 2);
    assert_string_equal(links[1].device[0], "r1");
    assert_string_equal(links[1].device[1], "r1");
    strcpy(fp[1].device[0].state, "DOWN");
    assert_int_equal(sh_cables_rdma_links(&cables, hosts, 1, 0, links), 1);
    assert_string_equal(links[0].device[0], "r1"); /* of host 1, which is named first */
    assert_string_equal(links[0].device[1], "r0");
    cables.count = 0;
    assert_int_equal(sh_cables_rdma_links(&cables, hosts, 0, 1, links), 0);
    hosts[1].fp = NULL;
    assert_int_equal(sh_cables_rdma_links(&cables, hosts, 0, 1, links), 0);
}

TEST(infiniband_ports_of_one_subnet_are_joined)
{
    UNUSED_STATE;
    sh_rdma_link links[SH_RDMA_LINKS_MAX];
    for (int i = 0; i < 2; i++) {
        interfaces(i, 1);
        fp[i].device[0].interface[0] = '\0';
        strcpy(fp[i].device[0].layer, "InfiniBand");
        fp[i].device[0].gid_count = 1;
        strcpy(fp[i].device[0].gid[0].text, "fe80:0000:0000:0000:0002:c903:0000:0001");
    }
    assert_int_equal(sh_cables_rdma_links(&cables, hosts, 0, 1, links), 1);
    strcpy(fp[1].device[0].gid[0].text, "fec0:0000:0000:0001:0002:c903:0000:0001");
    assert_int_equal(sh_cables_rdma_links(&cables, hosts, 0, 1, links), 0);
}

static bool ring_of(const char *pairs, int count, int *order)
{
    bool linked[HOSTS * HOSTS] = {0};
    for (const char *p = pairs; *p != '\0'; p += 2 + (p[2] != '\0')) {
        int a = p[0] - '0', b = p[1] - '0';
        linked[a * count + b] = linked[b * count + a] = true;
    }
    return sh_cables_ring(linked, count, order);
}

TEST(hosts_are_put_in_the_order_of_a_ring)
{
    UNUSED_STATE;
    int order[HOSTS];
    assert_true(ring_of("01", 2, order));
    assert_true(ring_of("02 21 13 30", 4, order));
    int want[] = {0, 2, 1, 3};
    assert_memory_equal(order, want, sizeof(want));
    assert_true(ring_of("01 12 23 30", 4, order));
    int same[] = {0, 1, 2, 3};
    assert_memory_equal(order, same, sizeof(same));
    assert_false(ring_of("01 12 23", 4, order));
    assert_false(ring_of("", 1, order));
}

TEST(each_direct_cable_without_addresses_gets_a_network_that_nobody_uses)
{
    UNUSED_STATE;
    sh_cable_address plan[8];
    interfaces(0, 3);
    interfaces(1, 3);
    interfaces(2, 1);
    cable(0, 0, 1, 0);
    cable(0, 1, 1, 1);
    cable(0, 2, 1, 2);
    address(0, 1, 10, 0, 0, 1, 24); /* the second has addresses */
    address(1, 1, 10, 0, 0, 2, 24);
    address(2, 0, 10, 254, 0, 7, 29); /* the first two networks are taken by a third host */
    assert_int_equal(sh_cables_plan(&cables, hosts, 3, plan, 8), 4);
    assert_string_equal(plan[0].address, "10.254.0.9/30");
    assert_string_equal(plan[0].interface, "e0");
    assert_int_equal(plan[0].host, 0);
    assert_string_equal(plan[1].address, "10.254.0.10/30");
    assert_int_equal(plan[1].host, 1);
    assert_string_equal(plan[3].address, "10.254.0.14/30");
    assert_string_equal(plan[3].interface, "e2");
    assert_int_equal(sh_cables_plan(&cables, hosts, 3, plan, 3), 2); /* whole cables only */
    address(2, 0, 10, 0, 0, 1, 8);                                   /* everything is taken */
    assert_int_equal(sh_cables_plan(&cables, hosts, 3, plan, 8), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(a_cable_is_known_once_whatever_its_direction, clean),
        cmocka_unit_test_setup(an_interface_with_the_default_gateway_is_not_a_direct_cable, clean),
        cmocka_unit_test_setup(measured_links_show_cables_too, clean),
        cmocka_unit_test_setup(devices_are_joined_by_cables_each_once, clean),
        cmocka_unit_test_setup(infiniband_ports_of_one_subnet_are_joined, clean),
        cmocka_unit_test_setup(hosts_are_put_in_the_order_of_a_ring, clean),
        cmocka_unit_test_setup(each_direct_cable_without_addresses_gets_a_network_that_nobody_uses,
                               clean),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

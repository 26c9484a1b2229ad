/* What another host may report about itself, all the way to the doctor's report. */
#include "cluster/doctor.h"

#include "base/status.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    static sh_net_link links[64];
    sh_fingerprint *fp = calloc(2, sizeof(*fp));
    const char *address[2];
    sh_findings findings = {0};
    sh_buf text = {0};
    sh_err err;
    sh_str said = {(const char *)data, len};
    if (sh_fingerprint_parse(said, "fuzz", &fp[0], &err) == SH_OK) {
        /* a neighbour with addresses one higher */
        fp[1] = fp[0];
        for (int i = 0; i < fp[1].address_count; i++)
            fp[1].address[i].bytes[fp[1].address[i].len - 1]++;
        sh_survey_host host[2] = {{.shown = "a", .fp = &fp[0]}, {.shown = "b", .fp = &fp[1]}};
        sh_net_host net[2];
        sh_survey_net(host, 2, net);
        int count = sh_net_links(net, 2, links, 64);
        for (int i = 0; i < count; i++) links[i].reached = i % 2 == 0;
        sh_net_choose(net, 2, links, count, address, &findings);
        sh_doctor_check(
            &(sh_doctor_view){
                .host = host, .count = 2, .link = links, .link_count = count, .version = "0"},
            &findings);
        sh_findings_text(&findings, false, &text);
        SH_ASSERT(sh_utf8_valid(text.ptr, text.len));
        cJSON_Delete(sh_findings_json(&findings));
    }
    sh_findings_reset(&findings);
    sh_buf_reset(&text);
    free(fp);
    return 0;
}

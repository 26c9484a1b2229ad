/* What a model is, whether it fits into this machine, and how it splits a text.
 *
 *     ./facts models/demo "Hello, world"
 */
#include <shoal.h>
#include <stdio.h>
#include <string.h>

static shoal_status print_facts(const shoal_settings *settings, shoal_error *err)
{
    shoal_facts facts;
    SHOAL_FACTS_INIT(&facts);
    shoal_status status = shoal_model_facts(settings, &facts, err);
    if (status != SHOAL_OK) return status;
    printf("%s, %d layers, %.1f million parameters, quantization: %s\n", facts.family, facts.layers,
           (double)facts.parameters / 1e6, facts.quantization);
    printf("%.1f MB of weights, a context of %d tokens\n", (double)facts.bytes / 1e6,
           facts.context);
    if (facts.fits_tokens > 0)
        printf("fits here with %lld tokens\n", (long long)facts.fits_tokens);
    else
        printf("needs %d machines like this one\n", facts.machines);
    return SHOAL_OK;
}

static shoal_status print_tokens(const shoal_settings *settings, const char *text, shoal_error *err)
{
    shoal_text *tokenizer;
    int32_t *ids;
    size_t count;
    shoal_status status = shoal_text_open(settings, &tokenizer, err);
    if (status != SHOAL_OK) return status;
    status = shoal_text_encode(tokenizer, text, strlen(text), 0, &ids, &count, err);
    if (status == SHOAL_OK) {
        for (size_t i = 0; i < count; i++) printf("%s%d", i == 0 ? "" : " ", (int)ids[i]);
        printf("\n");
        shoal_free(ids);
    }
    shoal_text_close(tokenizer);
    return status;
}

int main(int argc, char **argv)
{
    shoal_error err;
    if (argc < 2 || argc > 3) {
        fprintf(stderr, "usage: facts MODEL [TEXT]\n");
        return 2;
    }
    shoal_settings *settings = shoal_settings_new();
    shoal_status status = shoal_settings_set(settings, "model", argv[1], &err);
    if (status == SHOAL_OK) status = print_facts(settings, &err);
    if (status == SHOAL_OK && argc == 3) status = print_tokens(settings, argv[2], &err);
    shoal_settings_free(settings);
    if (status != SHOAL_OK) fprintf(stderr, "facts: %s\n", err.text);
    return status != SHOAL_OK;
}

/* Making, reading and checking tokens, and deriving keys from them.
 *
 * The wrapped form is what people copy. Its letters are base32, so that it survives being read out,
 * typed in capitals and selected by a double click. The bytes are
 *
 *   checksum (4)   of the bytes after it; notices a typo, and proves nothing
 *   form (1)       of the secret: its 16 bytes, or text with its length before it
 *   secret
 *   count (1), and as many addresses, each with its length before it
 *
 * The usual token, a random secret without addresses, is 42 characters long. */
#include "net/cluster_token.h"

#include "base/pack.h"
#include "base/secret.h"

#include <ctype.h>
#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/kdf.h>
#include <openssl/params.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/random.h>
#include <unistd.h>

static const char PREFIX[] = "shoal1";
static const char DIGITS[] = "abcdefghijklmnopqrstuvwxyz234567";

enum { CHECKSUM_LEN = 4, RAW_LEN = SH_CLUSTER_TOKEN_LEN / 2, FORM_RAW = 0, FORM_TEXT = 1 };

void sh_random(void *out, size_t len)
{
    /* Without random bytes nothing is secure; the systems that we run on never refuse them. */
    SH_ASSERT(getentropy(out, len) == 0);
}

static void hex_of(const uint8_t *bytes, size_t len, char *out)
{
    for (size_t i = 0; i < len; i++) snprintf(out + 2 * i, 3, "%02x", bytes[i]);
}

void sh_cluster_token_make(char out[SH_CLUSTER_TOKEN_LEN + 1])
{
    uint8_t bytes[RAW_LEN];
    sh_random(bytes, sizeof(bytes));
    hex_of(bytes, sizeof(bytes), out);
}

/* The most bits that text of these characters can hold, if each was chosen at random. */
static double bits_of(const char *secret)
{
    static const struct {
        const char *characters;
        double bits;
    } kinds[] = {
        {"0123456789", 3.32},
        {"0123456789abcdef", 4},
        {"0123456789ABCDEF", 4},
        {"0123456789abcdefghijklmnopqrstuvwxyz", 5.17},
        {"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ", 5.17},
    };
    size_t len = strlen(secret);
    for (size_t i = 0; i < SH_COUNT_OF(kinds); i++)
        if (strspn(secret, kinds[i].characters) == len) return (double)len * kinds[i].bits;
    return (double)len * 6; /* base64; more characters than that are rarely chosen at random */
}

static sh_status secret_check(const char *secret, sh_err *err)
{
    size_t len = strlen(secret);
    if (len > SH_CLUSTER_TOKEN_LEN_MAX)
        return sh_err_set(err, SH_ERR_INPUT,
                          "cluster token: %zu characters long, must be at most %d", len,
                          SH_CLUSTER_TOKEN_LEN_MAX);
    for (size_t i = 0; i < len; i++)
        if (secret[i] <= ' ' || secret[i] > '~')
            return sh_err_set(err, SH_ERR_INPUT,
                              "cluster token: character %zu is not a visible ASCII character",
                              i + 1);
    if (bits_of(secret) < SH_CLUSTER_TOKEN_BITS)
        return sh_err_set(err, SH_ERR_INPUT,
                          "cluster token: %zu characters of this kind hold %.0f bits, must be %d "
                          "or more: `shoal token` makes one",
                          len, bits_of(secret), SH_CLUSTER_TOKEN_BITS);
    return sh_secret_check("the cluster token", sh_str_of(secret), err);
}

static void checksum(sh_str bytes, char out[CHECKSUM_LEN])
{
    unsigned char hash[EVP_MAX_MD_SIZE];
    size_t len;
    SH_ASSERT(EVP_Q_digest(NULL, "SHA256", NULL, bytes.ptr, bytes.len, hash, &len) == 1);
    memcpy(out, hash, CHECKSUM_LEN);
}

static void base32_add(sh_str bytes, sh_buf *out)
{
    unsigned held = 0;
    int bits = 0;
    for (size_t i = 0; i < bytes.len; i++) {
        held = held << 8 | (unsigned char)bytes.ptr[i];
        for (bits += 8; bits >= 5; bits -= 5) sh_buf_add_char(out, DIGITS[held >> (bits - 5) & 31]);
    }
    if (bits > 0) sh_buf_add_char(out, DIGITS[held << (5 - bits) & 31]);
}

/* Capitals are the same letters. Bits that are left over must be zero, so that each token has one
 * spelling. */
static bool base32_read(sh_str text, sh_buf *out)
{
    unsigned held = 0;
    int bits = 0;
    for (size_t i = 0; i < text.len; i++) {
        const char *at = strchr(DIGITS, tolower((unsigned char)text.ptr[i]));
        if (text.ptr[i] == '\0' || at == NULL) return false;
        held = held << 5 | (unsigned)(at - DIGITS);
        bits += 5;
        if (bits < 8) continue;
        bits -= 8;
        sh_buf_add_char(out, (char)(held >> bits));
    }
    return bits < 5 && (held & ((1u << bits) - 1)) == 0;
}

static void put_word(sh_buf *out, const char *text)
{
    sh_put_uint(out, strlen(text), 1);
    sh_buf_add_text(out, text);
}

static void get_word(sh_reader *r, char *out, size_t cap)
{
    size_t len = sh_get_uint(r, 1);
    const char *text = len < cap ? sh_get_array(r, len, 1) : NULL;
    if (text == NULL) r->failed = true;
    out[0] = '\0';
    if (r->failed) return;
    memcpy(out, text, len);
    out[len] = '\0';
    if (strlen(out) != len) r->failed = true;
}

/* 32 lower-case hex digits are 16 bytes. */
static bool raw_of(const char *secret, uint8_t out[RAW_LEN])
{
    if (strlen(secret) != SH_CLUSTER_TOKEN_LEN ||
        strspn(secret, "0123456789abcdef") != SH_CLUSTER_TOKEN_LEN)
        return false;
    for (size_t i = 0; i < RAW_LEN; i++) {
        unsigned byte;
        if (sscanf(secret + 2 * i, "%2x", &byte) != 1) return false;
        out[i] = (uint8_t)byte;
    }
    return true;
}

sh_status sh_cluster_token_wrap(const sh_cluster_token *token, sh_buf *out, sh_err *err)
{
    sh_buf bytes = {0};
    uint8_t raw[RAW_LEN];
    char sum[CHECKSUM_LEN];
    size_t from = out->len;
    bool is_raw = raw_of(token->secret, raw);
    sh_put_uint(&bytes, is_raw ? FORM_RAW : FORM_TEXT, 1);
    if (is_raw)
        sh_buf_add(&bytes, raw, sizeof(raw));
    else
        put_word(&bytes, token->secret);
    sh_put_uint(&bytes, (uint64_t)token->place_count, 1);
    for (int i = 0; i < token->place_count; i++) put_word(&bytes, token->place[i]);
    checksum(sh_buf_str(&bytes), sum);
    sh_buf all = {0};
    sh_buf_add(&all, sum, sizeof(sum));
    sh_buf_add_str(&all, sh_buf_str(&bytes));
    sh_buf_add_text(out, PREFIX);
    base32_add(sh_buf_str(&all), out);
    sh_buf_reset(&all);
    sh_buf_reset(&bytes);
    if (out->len - from <= SH_CLUSTER_TOKEN_LEN_MAX) return SH_OK;
    return sh_err_set(err, SH_ERR_LIMIT,
                      "the token would be %zu characters long, may be %d: give shorter addresses, "
                      "or fewer",
                      out->len - from, SH_CLUSTER_TOKEN_LEN_MAX);
}

static sh_status places_read(sh_reader *r, sh_cluster_token *out, sh_err *err)
{
    size_t count = sh_get_uint(r, 1);
    if (count > SH_CLUSTER_TOKEN_PLACES_MAX) r->failed = true;
    out->place_count = r->failed ? 0 : (int)count;
    for (int i = 0; i < out->place_count; i++) get_word(r, out->place[i], sizeof(out->place[i]));
    sh_status status = sh_get_end(r, "the cluster token", err);
    for (int i = 0; status == SH_OK && i < out->place_count; i++) {
        char host[SH_ADDR_HOST_MAX];
        uint16_t port;
        status = sh_addr_split(out->place[i], host, &port, err);
        if (status != SH_OK) sh_err_prefix(err, "cluster token");
    }
    return status;
}

static sh_status bytes_parse(sh_str bytes, sh_cluster_token *out, sh_err *err)
{
    char sum[CHECKSUM_LEN];
    sh_str rest = sh_str_sub(bytes, CHECKSUM_LEN, bytes.len);
    checksum(rest, sum);
    if (bytes.len < CHECKSUM_LEN || memcmp(sum, bytes.ptr, CHECKSUM_LEN) != 0)
        return sh_err_set(err, SH_ERR_INPUT,
                          "cluster token: its checksum is wrong, so a part of it is missing or "
                          "was mistyped; copy it again");
    sh_reader r = sh_reader_of(rest);
    uint64_t form = sh_get_uint(&r, 1);
    const uint8_t *raw = form == FORM_RAW ? sh_get_array(&r, RAW_LEN, 1) : NULL;
    if (form > FORM_TEXT)
        return sh_err_set(err, SH_ERR_INPUT, "cluster token: made by a newer Shoal");
    if (raw != NULL) hex_of(raw, RAW_LEN, out->secret);
    if (form == FORM_TEXT) get_word(&r, out->secret, sizeof(out->secret));
    return places_read(&r, out, err);
}

static sh_status wrapped_parse(sh_str text, sh_cluster_token *out, sh_err *err)
{
    sh_buf bytes = {0};
    sh_status status = base32_read(text, &bytes)
                           ? bytes_parse(sh_buf_str(&bytes), out, err)
                           : sh_err_set(err, SH_ERR_INPUT,
                                        "cluster token: it has a character too many or too few, or "
                                        "one that no token has; copy it again");
    if (bytes.ptr != NULL) OPENSSL_cleanse(bytes.ptr, bytes.len);
    sh_buf_reset(&bytes);
    return status;
}

sh_status sh_cluster_token_parse(const char *text, sh_cluster_token *out, sh_err *err)
{
    sh_cluster_token token = {0};
    size_t len = strlen(text);
    sh_status status = SH_OK;
    if (len <= SH_CLUSTER_TOKEN_LEN_MAX && strncasecmp(text, PREFIX, strlen(PREFIX)) == 0)
        status = wrapped_parse(sh_str_of(text + strlen(PREFIX)), &token, err);
    else if (len <= SH_CLUSTER_TOKEN_LEN_MAX)
        memcpy(token.secret, text, len + 1);
    if (status == SH_OK)
        status = secret_check(len <= SH_CLUSTER_TOKEN_LEN_MAX ? token.secret : text, err);
    if (status == SH_OK) *out = token;
    OPENSSL_cleanse(&token, sizeof(token));
    return status;
}

sh_status sh_cluster_token_check(const char *text, sh_err *err)
{
    sh_cluster_token token;
    sh_status status = sh_cluster_token_parse(text, &token, err);
    OPENSSL_cleanse(&token, sizeof(token));
    return status;
}

/* HKDF (RFC 5869) with SHA-256. A secret has 128 bits or more, so nothing slower is needed. */
static void derive(const char *secret, const char *label, uint8_t out[SH_CLUSTER_TOKEN_KEY_LEN])
{
    EVP_KDF *kdf = EVP_KDF_fetch(NULL, "HKDF", NULL);
    EVP_KDF_CTX *ctx = EVP_KDF_CTX_new(kdf);
    OSSL_PARAM params[] = {
        OSSL_PARAM_construct_utf8_string(OSSL_KDF_PARAM_DIGEST, (char *)"SHA256", 0),
        OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_KEY, (void *)secret, strlen(secret)),
        OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_INFO, (void *)label, strlen(label)),
        OSSL_PARAM_construct_end(),
    };
    SH_ASSERT(ctx != NULL && EVP_KDF_derive(ctx, out, SH_CLUSTER_TOKEN_KEY_LEN, params) == 1);
    EVP_KDF_CTX_free(ctx);
    EVP_KDF_free(kdf);
}

void sh_cluster_token_key(const char *text, sh_cluster_token_use use,
                          uint8_t out[SH_CLUSTER_TOKEN_KEY_LEN])
{
    static const char *const labels[] = {[SH_TOKEN_KEY_LINKS] = "shoal links 2",
                                         [SH_TOKEN_KEY_DISCOVERY] = "shoal discovery 1",
                                         [SH_TOKEN_KEY_DISCOVERY_ID] = "shoal discovery id 1"};
    sh_cluster_token token;
    sh_err err;
    SH_ASSERT(sh_cluster_token_parse(text, &token, &err) == SH_OK);
    derive(token.secret, labels[use], out);
    OPENSSL_cleanse(&token, sizeof(token));
}

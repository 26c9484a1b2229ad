/* output_form.h - the form of a model's output, as a grammar: reasoning first, then content or tool
 * calls, written as the dialect writes them.
 *
 * Whatever matches the form is parsed by output.h to what the form was made from: the content as it
 * is, calls of the request's tools with arguments that are valid under their schemas. Reasoning is
 * free text.
 *
 * Threads: as for the builder. */
#ifndef SH_TEXT_OUTPUT_OUTPUT_FORM_H
#define SH_TEXT_OUTPUT_OUTPUT_FORM_H

#include "text/grammar/grammar.h"
#include "text/output/output.h"
#include "text/tokenizer/tokenizer.h"

typedef enum {
    SH_OUTPUT_CALLS_NONE, /* content only */
    SH_OUTPUT_CALLS_MAY,  /* content, calls, or free text before calls */
    SH_OUTPUT_CALLS_MUST, /* calls only */
} sh_output_call_rule;

typedef struct {
    sh_output_dialect dialect;
    const sh_tokenizer *tokenizer; /* knows which markers are special tokens; NULL: none is */
    bool in_reasoning;             /* see sh_output_prompt_opens */
    bool may_reason;               /* see sh_output_may_reason */
    sh_output_call_rule calls;
    const cJSON *tools; /* of the request, unless calls are NONE */
    bool strict;        /* all arguments follow the schemas, not only those of strict tools */
    bool one_call;
    const sh_expr *content; /* NULL: any text */
} sh_output_form;

/* Errors are in the builder. If one is in the schema of a tool, *bad_tool is its index; it is left
 * unchanged otherwise. The dialect must have calls unless calls are NONE. */
sh_expr sh_output_form_expr(sh_grammar_builder *b, const sh_output_form *form, int *bad_tool);

#endif

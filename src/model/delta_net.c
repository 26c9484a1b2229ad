/* A layer with a gated delta net in the place of attention, up to this rank's part of the output
 * projection. Heads are independent, so the ranks need nothing of each other before it. */
#include "model/model_internal.h"

void sh_pass_delta_net(const sh_pass *p, int index)
{
    const sh_layer *layer = &p->m->weights->layers[index];
    const sh_forward_buffers *b = &p->m->buf;
    sh_product in[2] = {{.w = &layer->delta_qkvz.w, .bias = layer->delta_qkvz.bias, .y = b->qkvz},
                        {.w = &layer->delta_ba.w, .bias = layer->delta_ba.bias, .y = b->ba}};
    sh_product out = {.w = &layer->o.w, .bias = layer->o.bias, .y = b->y};
    p->ops->matmul(p->dev, in, 2, p->in, p->tokens);
    p->ops->delta_net(p->dev, p->batch, &layer->delta, &p->m->state[index].fixed, b->qkvz, b->ba,
                      b->delta);
    p->ops->matmul(p->dev, &out, 1, b->delta, p->tokens);
}

/* A layer with a gated short convolution in the place of attention, up to this rank's part of the
 * output projection. Channels are independent, so the ranks need nothing of each other before it.
 */
#include "model/model_internal.h"

void sh_pass_short_conv(const sh_pass *p, int index)
{
    const sh_layer *layer = &p->m->weights->layers[index];
    const sh_tensor *conv = p->m->buf.conv;
    sh_product in[3], out = {.w = &layer->o.w, .bias = layer->o.bias, .y = p->m->buf.y};
    for (int i = 0; i < 3; i++)
        in[i] = (sh_product){
            .w = &layer->conv_in[i].w, .bias = layer->conv_in[i].bias, .y = conv[i]};
    p->ops->matmul(p->dev, in, 3, p->in, p->tokens);
    p->ops->short_conv(p->dev, p->batch, &layer->conv, &p->m->state[index].fixed, conv[0], conv[1],
                       conv[2], conv[0]);
    p->ops->matmul(p->dev, &out, 1, conv[0], p->tokens);
}

/* Sums over ranks: the CPU's numbers are f32, so with f32 on the wire they can be sent and received
 * where they are. The other formats are converted by kernels/codec.c. */
#include "kernels/cpu/cpu.h"

static float *numbers_at(sh_tensor x, const sh_layout *layout, size_t block)
{
    return sh_cpu_f32(x) + sh_layout_number_at(layout, block);
}

void *sh_cpu_exchange_buffer(sh_device *dev, size_t size)
{
    (void)dev;
    (void)size;
    return NULL;
}

void *sh_cpu_exchange_at(sh_device *dev, sh_tensor x, const sh_layout *layout, size_t block)
{
    (void)dev;
    return layout->codec == SH_CODEC_F32 ? numbers_at(x, layout, block) : NULL;
}

void sh_cpu_encode(sh_device *dev, sh_tensor x, const sh_layout *layout, size_t first, size_t end,
                   void *wire)
{
    (void)dev;
    sh_codec_encode(wire, layout, first, end, numbers_at(x, layout, first));
}

void sh_cpu_fold(sh_device *dev, sh_tensor x, const sh_layout *layout, size_t first, size_t end,
                 const void *const *parts, int count, void *sum)
{
    (void)dev;
    sh_codec_fold_round(numbers_at(x, layout, first), layout, first, end, parts, count, sum);
}

void sh_cpu_decode(sh_device *dev, sh_tensor x, const sh_layout *layout, size_t first, size_t end,
                   const void *wire)
{
    (void)dev;
    sh_codec_decode(numbers_at(x, layout, first), layout, first, end, wire);
}

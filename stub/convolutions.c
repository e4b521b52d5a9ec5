/* cuDNN's older interface for convolutions, which PyTorch uses if TORCH_CUDNN_V8_API_DISABLED is set, and for a few
 * kinds. Its descriptors are opaque objects; the shape of a tensor or a filter follows what rnn.c keeps there. */
typedef struct {
  tensor parameters;
  tensor_shape shape;
  int is_strided;
} convolution_object;
static int set_shape(convolution_object *object, int rank, const int *dims) {
  object->shape.rank = rank < MAX_RANK ? rank : MAX_RANK;
  for (int i = 0; i < object->shape.rank; i++) object->shape.dims[i] = dims[i];
  return 0;
}
EXPORT int cudnnSetTensorNdDescriptor(convolution_object *object, int type, int rank, const int *dims,
                                      const int *strides) {
  return set_shape(object, rank, dims);
}
EXPORT int cudnnSetFilterNdDescriptor(convolution_object *object, int type, int format, int rank, const int *dims) {
  return set_shape(object, rank, dims);
}
EXPORT int cudnnSetConvolutionNdDescriptor(convolution_object *object, int rank, const int *padding, const int *strides,
                                           const int *dilation, int mode, int type) {
  object->is_strided = 0;
  for (int i = 0; i < rank; i++) object->is_strided |= strides[i] > 1;
  return 0;
}
static int convolve(const convolution_object *filter, const convolution_object *input, const convolution_object *output,
                    const convolution_object *convolution) {
  descriptor plan = {.filter = filter->shape, .input = input->shape, .output = output->shape};
  plan.is_strided = convolution->is_strided;
  finalize_descriptor(&plan);
  submit_work();
  unknown_sizes[CUDNN]++;
  record_workspace(&plan);
  return 0;
}
EXPORT int cudnnConvolutionForward(void *handle, void *alpha, convolution_object *input, void *x,
                                   convolution_object *filter, void *w, convolution_object *convolution, int algorithm,
                                   void *space, size_t bytes, void *beta, convolution_object *output, void *y) {
  return convolve(filter, input, output, convolution);
}
EXPORT int cudnnConvolutionBackwardData(void *handle, void *alpha, convolution_object *filter, void *w,
                                        convolution_object *output, void *dy, convolution_object *convolution,
                                        int algorithm, void *space, size_t bytes, void *beta, convolution_object *input,
                                        void *dx) {
  return convolve(filter, input, output, convolution);
}
EXPORT int cudnnConvolutionBackwardFilter(void *handle, void *alpha, convolution_object *input, void *x,
                                          convolution_object *output, void *dy, convolution_object *convolution,
                                          int algorithm, void *space, size_t bytes, void *beta,
                                          convolution_object *filter, void *dw) {
  return convolve(filter, input, output, convolution);
}

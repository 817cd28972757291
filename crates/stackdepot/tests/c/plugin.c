// A library to load and unload. Variants differ in nothing but a constant, so that they map alike.
typedef void (*callback)(void *);
int plugin_number = VARIANT;
__attribute__((noinline, noclone)) static void inner(callback cb, void *arg) {
    cb(arg);
    plugin_number++;
}
void run(callback cb, void *arg) {
    inner(cb, arg);
    plugin_number--;
}

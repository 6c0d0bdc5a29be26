# SPDX-License-Identifier: Apache-2.0
#
# A whole guest in the 512 bytes that a BIOS loads: it says "GUEST UP" on the first serial port, then "tick N"
# about once a second (18 interrupts of the BIOS' 18.2 Hz timer), and sleeps in between.
        .code16
        .globl  _start
_start: cli
        xorw    %ax, %ax
        movw    %ax, %ds
        movw    %ax, %ss
        movw    $0x7c00, %sp
        cld
        sti
        movw    $greeting, %si
        call    print
again:  movw    $18, %cx
wait:   hlt
        loop    wait
        movw    $tick, %si
        call    print
        incw    count
        movw    count, %ax
        call    number
        movw    $newline, %si
        call    print
        jmp     again

# Print the string at SI.
print:  lodsb
        testb   %al, %al
        jz      done
        call    put
        jmp     print
done:   ret

# Print AX in decimal: its leading digits by recursion, then the last one.
number: xorw    %dx, %dx
        movw    $10, %bx
        divw    %bx
        pushw   %dx
        testw   %ax, %ax
        jz      digit
        call    number
digit:  popw    %ax
        addb    $'0', %al

# Send AL when the UART's transmitter is empty (line status register, bit 5).
put:    movb    %al, %ah
        movw    $0x3fd, %dx
busy:   inb     %dx, %al
        testb   $0x20, %al
        jz      busy
        movb    %ah, %al
        movw    $0x3f8, %dx
        outb    %al, %dx
        ret

greeting: .asciz "GUEST UP\r\n"
tick:   .asciz  "tick "
newline: .asciz "\r\n"
count:  .word   0
        .org    510
        .word   0xaa55
